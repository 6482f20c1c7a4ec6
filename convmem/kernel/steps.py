"""What the two drivers share."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from convmem.chat import Completion, Source

logger = logging.getLogger("convmem.kernel")


@dataclass(slots=True)
class Step:
    """How one operation ended: its value, or what had come when the caller left."""

    value: Any = None
    done: bool = False
    partial: Completion | None = None

    def set(self, value: Any) -> None:
        self.value, self.done = value, True

    def keep(self, source: Source) -> None:
        """Remember what ``source`` has assembled; a broken source has nothing."""
        with contextlib.suppress(Exception):
            self.partial = source.completion()


def log_last_error(error: Exception) -> None:
    """Report what went wrong while a flow saved for a caller who has left."""
    logger.error("The last saves of an interrupted run failed.", exc_info=error)


def log_close_error(error: Exception) -> None:
    """Report a stream that could not be closed: its answer counts all the same."""
    logger.warning("A model's stream could not be closed: %s", type(error).__name__)
