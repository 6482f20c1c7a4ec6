"""Texts that would do something if a page took them for more than text."""

from __future__ import annotations

from collections.abc import Sequence

from convmem.messages import (
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    ReasoningPart,
    RefusalPart,
    TextPart,
    ToolCall,
)

MARK = "window.ran=1"
TEXTS = (
    f"<script>{MARK}</script>",
    f'"><img src=x onerror="{MARK}">',
    f"'><svg/onload={MARK}>",
    f'" autofocus onfocus="{MARK}" x="',
    f"</pre></details></article><script>{MARK}</script>",
    f"</textarea><script>{MARK}</script>",
    f"--><script>{MARK}</script>",
    f'<iframe srcdoc="<script>parent.{MARK}</script>"></iframe>',
    f"<style>@import 'javascript:{MARK}';*{{display:none}}</style>",
    f'<a href="javascript:{MARK}">click</a>',
    f"<math><mtext><script>{MARK}</script></mtext></math>",
    f"{{{{ 7|add:7 }}}}{{% debug %}}<script>{MARK}</script>",
    f"\u202e<script>{MARK}</script>\u2066\x1b]8;;javascript:{MARK}\x07",
)
URLS = (
    f"javascript:{MARK}",
    f"JaVaScRiPt:{MARK}",
    f" javascript:{MARK}",
    f"java\nscript:{MARK}",
    f"vbscript:{MARK}",
    f"data:text/html,<script>{MARK}</script>",
    f"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='{MARK}'/>",
    f'https://example.com/"onmouseover="{MARK}"',
    "https://example.com/<script>",
    "file:///etc/passwd",
    "http://[bad",
)


def hostile_messages() -> Sequence[Message | str]:
    """Return messages with a hostile text in every field that is shown."""
    messages: list[Message | str] = []
    for text in TEXTS:
        messages += [
            Message.system(text, name=text),
            Message.user(text, name=text, metadata={text: [text]}),
            Message.assistant(
                (
                    TextPart(text=text),
                    ReasoningPart(text=text, signature=text, producer=text),
                    RefusalPart(text=text),
                    OpaquePart(data={"type": text, text: text}),
                ),
                tool_calls=(
                    ToolCall(id=text, name=text, arguments=text, kind=text),
                    ToolCall(id="x" + text, name=text, arguments=f'{{"a": "{MARK}'),
                ),
                model=text,
            ),
            Message.tool(text, text, name=text, is_error=True),
            Message.tool("lost" + text, text, name=text),
            text,
        ]
    links = [ImagePart(url=url, media_type=TEXTS[0], detail=TEXTS[1]) for url in URLS]
    files = [FilePart(url=url, filename=TEXTS[1], file_id=TEXTS[2]) for url in URLS]
    return [*messages, Message.user((*links, *files))]
