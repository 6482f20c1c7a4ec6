"""Several processes on one store: nothing lost, doubled, torn or out of order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.db import connection

from convmem.exceptions import StoreBusy
from convmem.stores import CacheStore, ChatMemory, DatabaseStore
from convmem.testing.storecontract.samples import check_turns

pytestmark = [pytest.mark.process, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]


class Worker:
    """A process of `tests.stores.worker`."""

    def __init__(self, *arguments: object) -> None:
        name = str(connection.settings_dict["NAME"])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.stores.worker", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "CONVMEM_TEST_NAME": name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> Any:
        """Return what the process says next."""
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait()}"
        return json.loads(line)

    def go(self) -> None:
        """Let the process begin (or end its wait)."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def rest(self) -> list[Any]:
        """Return all that the process still says; it must end well."""
        said = [json.loads(line) for line in self.process.stdout]
        assert self.process.wait(timeout=60) == 0
        return said

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Crew:
    """Starts workers on one store and begins them together."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.namespace = f"crew-{uuid.uuid4().hex}"
        self.workers: list[Worker] = []

    @property
    def store(self) -> ChatMemory:
        if self.kind == "redis":
            return CacheStore(namespace=self.namespace, cache="redis", timeout=300)
        return DatabaseStore(namespace=self.namespace)

    def start(self, *tasks: tuple[object, ...]) -> list[Worker]:
        workers = [Worker(self.kind, self.namespace, *task) for task in tasks]
        self.workers += workers
        for worker in workers:
            assert worker.hear() == "ready"
        for worker in workers:
            worker.go()
        return workers


@pytest.fixture(params=["database", "redis"])
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    if request.param == "redis":
        request.getfixturevalue("redis")
    crew = Crew(request.param)
    yield crew
    for worker in crew.workers:
        worker.close()


def test_eight_writers_into_one_conversation(crew: Crew) -> None:
    workers = crew.start(*(("write", "t", n, 100) for n in range(8)))
    acknowledged = [position for w in workers for position in w.rest()]
    assert sorted(acknowledged) == list(range(1, 1601, 2))
    check_turns(crew.store.get("t"), writers=8, turns=100, size=2)
    assert crew.store.totals("t").count == 1600


def test_eight_writers_into_eight_conversations(crew: Crew) -> None:
    workers = crew.start(*(("write", f"t{n}", 0, 100) for n in range(8)))
    for number, worker in enumerate(workers):
        assert worker.rest() == list(range(1, 200, 2))
        messages = crew.store.get(f"t{number}")
        check_turns(messages, writers=1, turns=100, size=2)


def test_a_process_killed_after_add_returned_loses_nothing(crew: Crew) -> None:
    (worker,) = crew.start(("write", "t", 0, 100_000))
    acknowledged = [worker.hear() for _ in range(40)]
    worker.process.kill()
    worker.process.wait()
    acknowledged += [json.loads(line) for line in worker.process.stdout]
    messages = crew.store.get("t")
    if messages[-1].status == "corrupt":  # numbers given out, killed before storing
        messages = [m for m in messages if m.status != "corrupt"]
        assert crew.kind == "redis"
    check_turns(messages, writers=1, turns=len(messages) // 2, size=2)
    assert acknowledged == list(range(1, 2 * len(acknowledged), 2))
    assert len(acknowledged) * 2 <= len(messages) <= len(acknowledged) * 2 + 2
    assert crew.store.add("t", ["next"])[0].position > acknowledged[-1] + 1


def test_the_same_keys_from_four_processes_add_once(crew: Crew) -> None:
    workers = crew.start(*(("keyed", "t", 50) for _ in range(4)))
    answers = [worker.rest() for worker in workers]
    assert answers[1:] == answers[:1] * 3
    messages = crew.store.get("t")
    assert [m.content for m in messages] == [f"{c}{n}" for n in range(50) for c in "qa"]
    assert [p for answer in answers[0] for p in answer] == [
        m.position for m in messages
    ]
    assert crew.store.totals("t").count == 100


def test_a_lock_that_outlasts_the_timeout_is_store_busy() -> None:
    crew = Crew("database")
    crew.store.add("t", ["before"])
    (worker,) = crew.start(("hold", "t"))
    try:
        assert worker.hear() == "held"
        with short_lock_timeout(), pytest.raises(StoreBusy) as caught:
            crew.store.add("t", ["mine"])
        assert "try again" in caught.value.message
        worker.go()
        worker.rest()
        crew.store.add("t", ["mine"])
        assert [m.content for m in crew.store.get("t")] == ["before", "held", "mine"]
    finally:
        worker.close()


class short_lock_timeout:
    """This connection waits a second for locks at most."""

    STATEMENTS: ClassVar = {
        "sqlite": ("PRAGMA busy_timeout = 500", "PRAGMA busy_timeout = 20000"),
        "postgresql": ("SET lock_timeout = '500ms'", "RESET lock_timeout"),
        "mysql": (
            "SET innodb_lock_wait_timeout = 1",
            "SET innodb_lock_wait_timeout = 50",
        ),
    }

    def run(self, index: int) -> None:
        with connection.cursor() as cursor:
            cursor.execute(self.STATEMENTS[connection.vendor][index])

    def __enter__(self) -> None:
        self.run(0)

    def __exit__(self, *error: object) -> None:
        self.run(1)
