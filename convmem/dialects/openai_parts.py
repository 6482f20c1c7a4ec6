"""Content parts of the OpenAI chat format, both ways.

A part of a known type but an unexpected shape is kept as an `OpaquePart`, so nothing
that was sent or stored is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from convmem.dialects.profiles import Profile
from convmem.messages import (
    AudioPart,
    FilePart,
    ImagePart,
    OpaquePart,
    Part,
    ReasoningPart,
    RefusalPart,
    TextPart,
    VideoPart,
)

Wire = dict[str, Any]

_AUDIO_FORMATS = {"audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/x-wav": "wav"}


# --- from the wire ---


def decode_part(part: object) -> Part:
    """Return the value of one wire part; a bare string is a text part."""
    if isinstance(part, str):
        return TextPart(text=part)
    if isinstance(part, Mapping):
        decode = _DECODERS.get(str(part.get("type")))
        found = decode(dict(part)) if decode is not None else None
        if found is not None:
            return found
        return OpaquePart(data=dict(part))
    return OpaquePart(data=part)


def _text(part: Wire) -> Part | None:
    text = part.get("text")
    if not isinstance(text, str):
        return None
    return TextPart(text=text, extra=_rest(part, "text"))


def _refusal(part: Wire) -> Part | None:
    text = part.get("refusal")
    if not isinstance(text, str):
        return None
    return RefusalPart(text=text, extra=_rest(part, "refusal"))


def _image(part: Wire) -> Part | None:
    given = part.get("image_url")
    if isinstance(given, str):
        given = {"url": given}
    image = _fields(given, "url", "detail")
    if image is None:
        return None
    return ImagePart(
        url=image["url"], detail=image.get("detail"), extra=_rest(part, "image_url")
    )


def _audio(part: Wire) -> Part | None:
    audio = _fields(part.get("input_audio"), "data", "format")
    if audio is None:
        return None
    return AudioPart(
        data=audio["data"],
        format=audio.get("format"),
        extra=_rest(part, "input_audio"),
    )


def _audio_url(part: Wire) -> Part | None:
    audio = _fields(part.get("audio_url"), "url")
    if audio is None:
        return None
    return AudioPart(url=audio["url"], extra=_rest(part, "audio_url"))


def _video_url(part: Wire) -> Part | None:
    video = _fields(part.get("video_url"), "url")
    if video is None:
        return None
    return VideoPart(url=video["url"], extra=_rest(part, "video_url"))


def _file(part: Wire) -> Part | None:
    given = part.get("file")
    first = "file_id" if isinstance(given, dict) and "file_id" in given else "file_data"
    file = _fields(given, first, "file_data", "filename")
    if file is None:
        return None
    data = file.get("file_data")
    is_url = data is not None and data.startswith("data:")
    return FilePart(
        file_id=file.get("file_id"),
        url=data if is_url else None,
        data=None if is_url else data,
        filename=file.get("filename"),
        extra=_rest(part, "file"),
    )


def _fields(value: object, required: str, *optional: str) -> dict[str, str] | None:
    """Return the object if it has no other fields than these, all of them strings."""
    if not isinstance(value, dict) or required not in value:
        return None
    known = (required, *optional)
    if all(key in known and isinstance(item, str) for key, item in value.items()):
        return value
    return None


def _rest(part: Wire, name: str) -> Wire:
    return {key: item for key, item in part.items() if key not in ("type", name)}


_DECODERS: Mapping[str, Callable[[Wire], Part | None]] = {
    "text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "input_audio": _audio,
    "audio_url": _audio_url,
    "video_url": _video_url,
    "file": _file,
}


# --- to the wire ---


def encode_parts(parts: Iterable[Part], profile: Profile) -> list[Any]:
    """Return the wire parts of a content, reasoning left out."""
    return [
        encode_part(part, profile)
        for part in parts
        if not isinstance(part, ReasoningPart)
    ]


def encode_part(part: Part, profile: Profile) -> Any:
    """Return one wire part. Reasoning has none: it is a field of its message."""
    if isinstance(part, OpaquePart):
        return part.data
    wire = _encode(part, profile)
    wire.update(kept_fields(part.extra, profile))
    return wire


def kept_fields(fields: Mapping[str, Any], profile: Profile) -> Wire:
    """Return those unknown fields that may go back to this provider."""
    allowed = profile.extra_fields
    return {k: v for k, v in fields.items() if allowed is None or k in allowed}


def _encode(part: Part, profile: Profile) -> Wire:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, RefusalPart):
        if profile.refusal_parts:
            return {"type": "refusal", "refusal": part.text}
        return {"type": "text", "text": part.text}
    if isinstance(part, AudioPart) and part.data is not None:
        return {"type": "input_audio", "input_audio": _inline_audio(part)}
    if isinstance(part, AudioPart):
        return {"type": "audio_url", "audio_url": {"url": part.url or ""}}
    if isinstance(part, VideoPart):
        return {"type": "video_url", "video_url": {"url": _url(part, "video/mp4")}}
    if isinstance(part, ImagePart) and not (part.file_id and not part.url):
        image = {"url": _url(part, "image/png"), "detail": part.detail}
        return {"type": "image_url", "image_url": _present(image)}
    assert isinstance(part, FilePart | ImagePart)  # noqa: S101 - for the type checker
    return {"type": "file", "file": _file_fields(part)}


def _file_fields(part: FilePart | ImagePart) -> Wire:
    data = part.url or part.data
    if part.data and not part.url and part.media_type:
        data = _url(part, part.media_type)
    filename = part.filename if isinstance(part, FilePart) else None
    fields = {"file_id": part.file_id, "file_data": data, "filename": filename}
    return _present(fields)


def _inline_audio(part: AudioPart) -> Wire:
    kind = part.format
    if kind is None and part.media_type is not None:
        subtype = part.media_type.partition("/")[2]
        kind = _AUDIO_FORMATS.get(part.media_type, subtype)
    return _present({"data": part.data, "format": kind})


def _url(part: ImagePart | VideoPart | FilePart, media_type: str) -> str:
    """Return the part's URL; inline data becomes a data: URL."""
    if part.url is not None:
        return part.url
    return f"data:{part.media_type or media_type};base64,{part.data or ''}"


def _present(fields: Wire) -> Wire:
    return {key: item for key, item in fields.items() if item is not None}
