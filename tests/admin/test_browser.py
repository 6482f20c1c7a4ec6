"""The pages in a real browser, under a policy that forbids everything inline."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, sync_playwright

from convmem.admin import ConversationAdmin
from convmem.messages import ImagePart, Message, ToolCall
from convmem.owners import Owner
from tests.admin.conftest import find_chromium, page_url
from tests.admin.hostile import TEXTS, hostile_messages
from tests.admin.test_media import PIXEL

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class StrictPolicy:
    """Middleware: the policy on every page that has none."""

    def __init__(self, get_response) -> None:
        self.get_response = get_response

    def __call__(self, request):
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


@pytest.fixture(autouse=True)
def strict_policy(settings) -> None:
    name = f"{__name__}.StrictPolicy"
    settings.MIDDLEWARE = [name, *settings.MIDDLEWARE]


@contextmanager
def browsing(live_server, user, **options) -> Iterator[tuple[Page, list[str]]]:
    """Yield a page of a browser that is logged in, and a list of what went wrong.

    All rows must have been written before: playwright's loop runs in this thread, and
    Django refuses database access beside a running loop.
    """
    client = Client()
    client.force_login(user)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    path = find_chromium()
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        context = browser.new_context(base_url=live_server.url, **options)
        cookie = {"name": settings.SESSION_COOKIE_NAME, "value": session}
        context.add_cookies([{**cookie, "url": live_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(dialog.message))
        page.on(
            "console",
            lambda line: faults.append(line.text) if line.type == "error" else None,
        )
        page.on(
            "request",
            lambda request: (
                faults.append(request.url)
                if not request.url.startswith(live_server.url)
                else None
            ),
        )
        try:
            yield page, faults
        finally:
            browser.close()


def without_favicon(faults: list[str]) -> list[str]:
    return [fault for fault in faults if "404 (Not Found)" not in fault]


def test_from_the_list_to_a_message_and_back(make, live_server, superuser) -> None:
    asked = ToolCall(id="a", name="weather", arguments='{"city":"Oslo"}')
    messages = [Message.user(f"question {n}") for n in range(60)]
    messages += [
        Message.assistant(tool_calls=(asked,)),
        Message.tool("a", "sunny spells"),
        Message.assistant("Sunny."),
    ]
    make(messages, "holiday")
    make([Message.user("other")], "other")
    with browsing(live_server, superuser) as (page, faults):
        page.goto(page_url("changelist"))
        page.fill("#searchbar", "sunny")
        page.press("#searchbar", "Enter")
        page.click("#result_list tbody th a")
        assert page.inner_text("h2") == "holiday"
        assert page.locator("article").count() == 49
        assert not page.locator("#m62 .convmem-text").is_visible()
        # a fold opens from the keyboard
        page.locator(".convmem-result summary").first.focus()
        page.keyboard.press("Enter")
        assert page.locator("#m62 .convmem-text").is_visible()
        page.click("text=Older >> nth=0")
        assert page.locator("article").count() == 13
        page.fill("#convmem-at", "62")
        page.press("#convmem-at", "Enter")
        page.wait_for_url(re.compile(r"\?before=\d+#m62$"))
        # a deep link into a fold opens it
        assert page.locator("#m62 .convmem-text").is_visible()
        page.locator("#m63").get_by_text("Open alone").click()
        assert "Message 63" in page.inner_text("h1")
        page.click("text=Show in transcript")
        page.wait_for_url(re.compile("#m63$"))
    assert without_favicon(faults) == []


@pytest.mark.parametrize("opened", [False, True])
def test_nothing_that_was_written_runs(
    make, live_server, superuser, monkeypatch, opened
) -> None:

    monkeypatch.setattr(ConversationAdmin, "transcript_page_size", 200)
    owner = Owner(name=TEXTS[1], id=TEXTS[2])
    conversation = make(hostile_messages(), TEXTS[0], owner)
    with browsing(live_server, superuser) as (page, faults):
        for name in ("transcript", "change", "delete", "history"):
            page.goto(page_url(name, conversation.pk))
            if opened:
                page.evaluate(OPEN_ALL)
            page.mouse.move(300, 300)
            page.mouse.wheel(0, 20_000)
            assert page.evaluate("window.ran") is None
            assert page.locator("article script, article iframe").count() == 0
        page.goto(page_url("changelist"))
        assert page.evaluate("window.ran") is None
        assert TEXTS[0] in page.inner_text("#result_list")
    assert without_favicon(faults) == []


def test_nothing_runs_without_a_policy_either(
    make, live_server, superuser, monkeypatch
) -> None:
    monkeypatch.setattr(f"{__name__}.POLICY", "img-src 'self'")
    conversation = make(hostile_messages(), TEXTS[0])
    with browsing(live_server, superuser) as (page, faults):
        page.goto(page_url("transcript", conversation.pk))
        page.evaluate(OPEN_ALL)
        page.wait_for_timeout(200)
        assert page.evaluate("window.ran") is None
    assert without_favicon(faults) == []


def test_stored_pictures_are_drawn_and_others_not_fetched(
    make, live_server, superuser
) -> None:
    stored = ImagePart(data=base64.b64encode(PIXEL).decode(), media_type="image/png")
    away = ImagePart(url="https://example.com/away.png")
    conversation = make([Message.user((stored, away))])
    with browsing(live_server, superuser) as (page, faults):
        page.goto(page_url("transcript", conversation.pk))
        page.wait_for_function("document.querySelector('article img').complete")
        assert page.evaluate("document.querySelector('article img').naturalWidth") == 1
        assert page.locator("article img").count() == 1
        assert page.get_by_role(
            "link", name="https://example.com/away.png"
        ).is_visible()
    assert without_favicon(faults) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_pages_fit_the_screen_and_can_be_read(
    make, live_server, superuser, scheme, width
) -> None:
    word = "unbroken" * 100
    asked = ToolCall(id=word, name=word, arguments=f'{{"{word}":"{word}"}}')
    conversation = make(
        [
            Message.system(word),
            Message.user(word, name=word, metadata={word: word}),
            Message.assistant(word, tool_calls=(asked,), model=word, status="failed"),
            Message.tool(word, word, is_error=True),
            "{" + word,
        ],
        word[:255],
        Owner(name=word[:100], id=word[:100]),
    )
    size = {"width": width, "height": 800}
    with browsing(live_server, superuser, viewport=size, color_scheme=scheme) as (
        page,
        faults,
    ):
        page.goto(page_url("transcript", conversation.pk))
        page.evaluate(OPEN_ALL)
        overflow = page.evaluate("document.documentElement.scrollWidth") - width
        assert overflow <= 0, page.evaluate(WIDEST)
        assert page.evaluate(CONTRAST) >= 4.5
    assert without_favicon(faults) == []


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_without_a_browser_only_ci_fails(monkeypatch, ci, outcome) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CI", ci)
    monkeypatch.delenv("CHROMIUM", raising=False)
    with pytest.raises(outcome, match="no Chromium found on PATH"):
        find_chromium()


OPEN_ALL = "document.querySelectorAll('details').forEach(d => d.open = true)"
WIDEST = """() => [...document.querySelectorAll('body *')].filter(
  e => e.getBoundingClientRect().right > innerWidth).map(
  e => e.tagName + '.' + e.className).slice(0, 20)"""

# The least contrast (WCAG) between a text and what is behind it in the transcript.
CONTRAST = """() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll('article *')].filter(
    e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  return Math.min(...texts.map(e => {
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
}"""
