"""Wire formats, without input or output.

`openai` is the chat-completions dialect; `profiles` says how each provider differs.
"""

from __future__ import annotations
