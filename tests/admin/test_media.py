"""Media inside messages: drawn or downloaded, never run."""

from __future__ import annotations

import base64

import pytest

from convmem.messages import FilePart, ImagePart, Message, TextPart
from tests.admin.conftest import page_url

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
    "AABJRU5ErkJggg=="
)
ENCODED = base64.b64encode(PIXEL).decode()
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def fetch(client, make, part, index: int = 0):
    conversation = make([Message.user((part,))])
    return client.get(page_url("media", conversation.pk, 1, index))


@pytest.mark.parametrize(
    "part",
    [
        ImagePart(data=ENCODED, media_type="image/png"),
        ImagePart(url=f"data:image/png;base64,{ENCODED}"),
        ImagePart(url=f"DATA:Image/PNG;charset=x;BASE64,{ENCODED}"),
        FilePart(data=ENCODED, media_type="image/png; q=1", filename="a\r\nb: c.html"),
    ],
)
def test_a_picture_is_served_as_one(make, staff, part) -> None:
    response = fetch(staff, make, part)
    assert response.content == PIXEL
    assert response["Content-Type"] == "image/png"
    assert response["Content-Disposition"] == 'inline; filename="message-1-0.png"'
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    ("part", "content", "name"),
    [
        (ImagePart(url=f"data:image/svg+xml,{SVG}"), SVG, "message-1-0.bin"),
        (ImagePart(data="aGk=", media_type="image/svg+xml"), "hi", "message-1-0.bin"),
        (FilePart(url="data:text/html,%3Cb%3E"), "<b>", "message-1-0.bin"),
        (FilePart(data="aGk=", media_type="text/plain"), "hi", "message-1-0.txt"),
        (FilePart(data="aGk=", media_type="application/pdf"), "hi", "message-1-0.pdf"),
        (FilePart(data="aGk=", media_type="x\r\ny: z"), "hi", "message-1-0.bin"),
        (FilePart(data="aGk="), "hi", "message-1-0.bin"),
    ],
)
def test_anything_else_is_a_download_of_no_type(
    make, staff, part, content, name
) -> None:
    response = fetch(staff, make, part)
    assert response.content.decode() == content
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Disposition"] == f'attachment; filename="{name}"'


@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="no media"),
        ImagePart(url="https://example.com/a.png"),
        ImagePart(url="data:image/png;base64"),
        ImagePart(data="a", media_type="image/png"),
        ImagePart(file_id="file-1"),
    ],
)
def test_what_holds_no_media_is_404(make, staff, part) -> None:
    assert fetch(staff, make, part).status_code == 404


def test_parts_and_messages_that_are_not_there_are_404(make, staff) -> None:
    part = ImagePart(data=ENCODED, media_type="image/png")
    assert fetch(staff, make, part, index=1).status_code == 404
    conversation = make(["{broken"])
    assert staff.get(page_url("media", conversation.pk, 1, 0)).status_code == 404
    assert staff.get(page_url("media", conversation.pk, 9, 0)).status_code == 404


def test_small_pictures_are_drawn_and_large_ones_linked(make, staff) -> None:
    small = ImagePart(data=ENCODED, media_type="image/png")
    large = ImagePart(data="A" * 800_000, media_type="image/png")
    svg = ImagePart(url=f"data:image/svg+xml,{SVG}")
    conversation = make([Message.user((small, large, svg))])
    page = staff.get(page_url("transcript", conversation.pk)).content.decode()
    urls = [page_url("media", conversation.pk, 1, index) for index in range(3)]
    assert f'<img src="{urls[0]}"' in page
    assert page.count("<img") == 1
    assert all(f'<a href="{url}">' in page for url in urls)
    assert "585.9" in page
    assert "AAAAAAAA" not in page
