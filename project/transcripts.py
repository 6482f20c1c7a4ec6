"""Transcripts in files: OpenAI-shaped chats become messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from convmem.dialects.openai import decode_message
from convmem.exceptions import BadInput
from convmem.messages import Message

#: Keys under which files keep the messages of a chat.
KEYS = ("messages", "conversation", "history")


class UnreadableTranscript(BadInput):
    """The file holds no chat of a shape that is understood."""

    code = "unreadable_transcript"


def read_transcript(path: Path, index: int = 0) -> list[Message]:
    """Return the messages of the ``index``-th chat in a file.

    A file is JSON (a list of messages, an object with ``messages``, or a list of such
    objects) or JSON Lines (one of these a line). Raises `UnreadableTranscript` with the
    reason, `InvalidMessage` when a message breaks a rule.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableTranscript(f"{path} cannot be read: {error}.") from error
    chats = _chats(_parsed(text, path))
    if not chats:
        raise UnreadableTranscript(
            f"{path} holds no chat in OpenAI's shape: a list of objects with 'role', "
            "or an object with 'messages'."
        )
    if not 0 <= index < len(chats):
        raise UnreadableTranscript(
            f"{path} has {len(chats)} chats in OpenAI's shape; there is no number "
            f"{index} (they count from 0)."
        )
    return [
        decode_message(message, index=place, seed=f"{path.name}:{index}:{place}")
        for place, message in enumerate(chats[index])
    ]


def _parsed(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except ValueError as whole:
        lines = [line for line in text.split("\n") if line.strip()]
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            raise UnreadableTranscript(
                f"{path} is neither JSON nor JSON Lines: {whole}."
            ) from whole


def _chats(value: Any) -> list[list[dict[str, Any]]]:
    """Return every list of messages that stands at the top of ``value``."""
    if _is_chat(value):
        return [value]
    items = value if isinstance(value, list) else [value]
    found = []
    for item in items:
        if isinstance(item, dict):
            item = next((item[key] for key in KEYS if _is_chat(item.get(key))), None)
        if _is_chat(item):
            found.append(item)
    return found


def _is_chat(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "role" in item for item in value)
    )
