"""The recorded responses, as test cases."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convmem.dialects.profiles import CUSTOM, GROQ, OLLAMA, OPENAI, Profile

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
PROFILES = {
    "openai_chat": OPENAI,
    "openai_compat": CUSTOM,
    "groq": GROQ,
    "ollama_v1": OLLAMA,
}


@dataclass(frozen=True)
class Recording:
    name: str
    profile: Profile
    request: dict[str, Any]
    response: dict[str, Any]

    @property
    def body(self) -> bytes:
        text = self.response.get("body_text")
        if text is None:
            text = json.dumps(self.response["body"], ensure_ascii=False)
        return text.encode()

    @property
    def stream(self) -> bytes:
        return self.response["sse_text"].encode()


def load(*, streams: bool | None = None) -> list[Recording]:
    """All recordings of this dialect; ``streams`` picks streamed or whole ones."""
    found = []
    for folder, profile in PROFILES.items():
        for path in sorted((SHARED / "recorded" / folder).glob("*.json")):
            data = json.loads(path.read_text())
            name = f"{folder}/{path.stem}"
            found.append(Recording(name, profile, data["request"], data["response"]))
    is_stream = [r.response.get("sse_text") is not None for r in found]
    return [r for r, s in zip(found, is_stream, strict=True) if streams in (None, s)]
