"""A process that a test starts: ``python -m tests.stores.worker STORE TASK ...``.

It says "ready", waits for a line, and then does its task, so that several of them begin
together.
"""

from __future__ import annotations

import json
import os
import sys

import django


def main(kind: str, namespace: str, task: str, *arguments: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from convmem.stores import CacheStore, ChatMemory, DatabaseStore

    store: ChatMemory
    if kind == "redis":
        store = CacheStore(namespace=namespace, cache="redis", timeout=300)
    else:
        store = DatabaseStore(namespace=namespace)
    say("ready")
    sys.stdin.readline()
    TASKS[task](store, *arguments)


def write(store, conversation: str, writer: str, turns: str) -> None:
    """Add turns of two messages; say each turn's first position when it is in."""
    for turn in range(int(turns)):
        added = store.add(conversation, [f"{writer}:{turn}:{n}" for n in range(2)])
        say(added[0].position)


def keyed(store, conversation: str, count: str) -> None:
    """Add the same batches with the same keys as everybody else."""
    for number in range(int(count)):
        batch = [f"q{number}", f"a{number}"]
        added = store.add(conversation, batch, key=f"key {number}")
        say([m.position for m in added])


def hold(store, conversation: str) -> None:
    """Lock the conversation until a line comes."""
    from django.db import transaction

    with transaction.atomic():
        store.add(conversation, ["held"])
        say("held")
        sys.stdin.readline()


def say(value) -> None:
    print(json.dumps(value), flush=True)


TASKS = {"write": write, "keyed": keyed, "hold": hold}

if __name__ == "__main__":
    main(*sys.argv[1:])
