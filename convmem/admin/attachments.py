"""Media inside messages, served so that a browser only ever draws or downloads it."""

from __future__ import annotations

import base64
import binascii
import mimetypes
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes, urlsplit

from django.http import HttpResponse

from convmem.messages import AudioPart, FilePart, ImagePart, VideoPart

MediaPart = ImagePart | AudioPart | VideoPart | FilePart

#: Types that a browser draws and that can hold no script (SVG can).
DRAWABLE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
#: Encoded characters above which a picture is offered as a link only.
MAX_PREVIEW = 700_000
#: Types whose usual file name extension a download may carry.
_NAMED = ("image/", "audio/", "video/", "text/plain", "application/pdf")


@dataclass(frozen=True)
class Attachment:
    """Inline media as stored: base64 or, from a data URL, perhaps percent-encoded."""

    media_type: str
    payload: str
    is_base64: bool = True

    @property
    def size(self) -> int:
        """The approximate size in bytes, without decoding."""
        return len(self.payload) * 3 // 4 if self.is_base64 else len(self.payload)

    @property
    def is_drawable(self) -> bool:
        return self.media_type in DRAWABLE

    @property
    def has_preview(self) -> bool:
        return self.is_drawable and len(self.payload) <= MAX_PREVIEW

    def decode(self) -> bytes | None:
        """Return the bytes, or None when the payload is broken."""
        if not self.is_base64:
            return unquote_to_bytes(self.payload)
        try:
            return base64.b64decode(self.payload, validate=False)
        except (binascii.Error, ValueError):
            return None


def attachment(part: MediaPart) -> Attachment | None:
    """Return the media that ``part`` itself carries, or None when it only refers."""
    if part.data is not None:
        return Attachment(_media_type(part.media_type), part.data)
    if part.url is None or part.url[:5].lower() != "data:":
        return None
    head, comma, payload = part.url[5:].partition(",")
    if not comma:
        return None
    declared, *options = head.split(";")
    return Attachment(
        _media_type(declared or part.media_type),
        payload,
        is_base64="base64" in [option.strip().lower() for option in options],
    )


def safe_link(url: str | None) -> str | None:
    """Return ``url`` if a person may follow it from the admin: http and https only."""
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return url if parts.scheme in ("http", "https") and parts.netloc else None


def response(found: Attachment, content: bytes, name: str) -> HttpResponse:
    """Return ``content`` as a picture, or as a download when it is none.

    Nothing in it can run: the type is fixed, sniffing is off, and the policy forbids
    scripts even when the address is opened by itself.
    """
    drawable = found.is_drawable
    answer = HttpResponse(
        content,
        content_type=found.media_type if drawable else "application/octet-stream",
    )
    kind = "inline" if drawable else "attachment"
    answer["Content-Disposition"] = (
        f'{kind}; filename="{name}{_extension(found.media_type)}"'
    )
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


def _media_type(declared: str | None) -> str:
    return (declared or "application/octet-stream").split(";")[0].strip().lower()


def _extension(media_type: str) -> str:
    if media_type.startswith(_NAMED) and "svg" not in media_type:
        return mimetypes.guess_extension(media_type) or ".bin"
    return ".bin"
