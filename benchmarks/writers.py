"""Eight processes that write at once: turns a second, raw driver beside convmem."""

from __future__ import annotations

import multiprocessing
import os
import time
from typing import Any

import django

WRITERS = 8
TURNS = 100


def throughput(kind: str, database: str, conversation: str) -> float:
    """Return turns a second over `WRITERS` processes, each adding `TURNS` turns of
    two messages to one conversation. ``kind`` is ``raw`` or ``convmem``."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WRITERS)
    queue: Any = context.Queue()
    workers = [
        context.Process(
            target=_write, args=(kind, database, conversation, barrier, queue)
        )
        for _ in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    spans = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    elapsed = max(end for _, end in spans) - min(start for start, _ in spans)
    return WRITERS * TURNS / elapsed


def _write(
    kind: str, database: str, conversation: str, barrier: Any, queue: Any
) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    django.setup()
    from benchmarks import contenders

    append = contenders.appender(kind, database, conversation)
    append()  # opens the connection
    barrier.wait()
    start = time.time()
    for _ in range(TURNS):
        append()
    queue.put((start, time.time()))
