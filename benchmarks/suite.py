"""What is measured, and the bars that the figures are held against."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from benchmarks import contenders, peers
from benchmarks.plain.models import PlainStore
from benchmarks.timing import Pair, compare
from benchmarks.writers import throughput
from convmem.memory import DefaultMemoryProvider, TokenWindow

Row = tuple[str, Pair | None, str]
APPEND_BARS = {
    "sqlite": ("<= 2.5", ""),
    "postgres": ("<= 3.5", "<= 1.8 (stretch)"),
}


class Suite:
    """The tables for one database."""

    def __init__(
        self, name: str, sizes: list[int], rounds: int, *, peers: bool = True
    ) -> None:
        self.name = name
        self.alias = "default" if name == "sqlite" else "postgres"
        self.sizes = sizes
        self.rounds = rounds
        self.with_peers = peers
        self.loop = asyncio.new_event_loop()
        self.floor = contenders.floor(self.alias)
        self.stores = {"convmem": contenders.store(self.alias)}
        if name == "postgres":
            self.stores["convmem, server-side binding"] = contenders.store(
                "postgres_bound"
            )
        self.peers = self._peers() if peers else []
        for size in sizes:
            self._fill(size)
        contenders.analyze(self.alias)

    def tables(self) -> Iterator[tuple[str, list[Row]]]:
        for size in self.sizes:
            yield (
                self._title(f"append a turn of two messages at {size:,}"),
                (self._append(size)),
            )
        newest = {size: self._newest(size) for size in self.sizes}
        fitting = {size: self._fitting(size) for size in self.sizes}
        for size in self.sizes:
            yield self._title(f"load the newest 20 of {size:,}"), newest[size]
            title = f"load the newest that fit 2,000 tokens of {size:,}"
            yield self._title(title), fitting[size]
        for size in self.sizes:
            yield self._title(f"load all {size:,}"), self._everything(size)
        yield self._flat("newest 20", newest)
        yield self._flat("newest 2,000 tokens", fitting)
        yield self._writers()

    def _title(self, what: str) -> str:
        return f"{self.name}: {what}"

    def _peers(self) -> list[peers.AgentsSqlite | peers.LangChainSql]:
        found: list[peers.AgentsSqlite | peers.LangChainSql] = [
            peers.AgentsSqlAlchemy(self.loop, self.name),
            peers.LangChainSql(self.name),
        ]
        if self.name == "sqlite":
            found.insert(0, peers.AgentsSqlite(self.loop))
        return found

    def _fill(self, size: int) -> None:
        names = [
            f"floor-{size}",
            f"load-{size}",
            f"async-{size}",
            *(f"{label}-{size}" for label in self.stores),
        ]
        for name in names:
            contenders.fill(self.alias, name, size)
        batch = contenders.TURN * (size // 2)
        for peer in self.peers:
            for start in range(0, len(batch), 1000):
                peer.add(f"peer-{size}", batch[start : start + 1000])
        plain = PlainStore(self.alias)
        for start in range(0, len(batch), 1000):
            plain.add(f"plain-{size}", batch[start : start + 1000])

    def _append(self, size: int) -> list[Row]:
        floor_key = contenders.key(f"floor-{size}")
        calls: dict[str, Callable[[], object]] = {
            "raw driver": lambda: self.floor.append(floor_key, contenders.BODIES)
        }
        for label, store in self.stores.items():
            calls[label] = _bind(store.add, f"{label}-{size}", contenders.MESSAGES)
        memory = self.stores["convmem"]
        calls["convmem, async"] = lambda: self.loop.run_until_complete(
            memory.aadd(f"async-{size}", contenders.MESSAGES)
        )
        plain = PlainStore(self.alias)
        calls["plain ORM"] = _bind(plain.add, f"plain-{size}", contenders.TURN)
        for peer in self.peers:
            calls[peer.name] = _bind(peer.add, f"peer-{size}", contenders.TURN)
        bars = dict(zip(self.stores, APPEND_BARS[self.name], strict=False))
        bars["convmem, async"] = "<= 6"
        return self._rows(calls, bars)

    def _newest(self, size: int) -> list[Row]:
        name = f"load-{size}"
        calls: dict[str, Callable[[], object]] = {
            "raw driver": _bind(self.floor.newest, contenders.key(name), 20)
        }
        for label, store in self.stores.items():
            calls[label] = _bind(store.newest, name, 20)
        memory = self.stores["convmem"]
        calls["convmem, async"] = lambda: self.loop.run_until_complete(
            memory.anewest(name, 20)
        )
        calls["plain ORM"] = _bind(PlainStore(self.alias).newest, f"plain-{size}", 20)
        for peer in self.peers:
            calls[peer.name] = _bind(peer.newest, f"peer-{size}", 20)
        return self._rows(calls, {"convmem": "<= 1.7"})

    def _fitting(self, size: int) -> list[Row]:
        name = f"load-{size}"
        providers = {
            label: DefaultMemoryProvider(store, window=TokenWindow(2000))
            for label, store in self.stores.items()
        }
        provider = providers["convmem"]
        count = len(provider.prepare(name, provider.history(name)))
        calls: dict[str, Callable[[], object]] = {
            f"raw driver, LIMIT {count}": _bind(
                self.floor.newest, contenders.key(name), count
            )
        }
        for label, memory in providers.items():
            calls[label] = _bind(memory.history, name)
        return self._rows(calls, {"convmem": "<= 2"})

    def _everything(self, size: int) -> list[Row]:
        name = f"load-{size}"
        calls: dict[str, Callable[[], object]] = {
            "raw driver": _bind(self.floor.everything, contenders.key(name))
        }
        for label, store in self.stores.items():
            calls[label] = _bind(store.get, name)
        for peer in self.peers:
            calls[peer.name] = _bind(peer.everything, f"peer-{size}")
        rounds = max(5, min(self.rounds, 200_000 // size))
        return self._rows(calls, {"convmem": "<= 1.3"}, rounds=rounds)

    def _flat(self, what: str, tables: dict[int, list[Row]]) -> tuple[str, list[Row]]:
        """Compare the largest size with the smallest, beside the floor's own growth."""
        small, large = min(tables), max(tables)
        rows: list[Row] = []
        for early, late in zip(tables[small], tables[large], strict=True):
            if early[1] is not None and late[1] is not None:
                ours = late[1].time / early[1].time
                floor = late[1].floor / early[1].floor
                text = f"{early[0]}: {ours:.2f} (floor {floor:.2f})"
                rows.append((text, None, "<= 1.2"))
        return self._title(f"{what}, time at {large:,} / time at {small:,}"), rows

    def _writers(self) -> tuple[str, list[Row]]:
        bar = ">= 0.5" if self.name == "sqlite" else ">= 0.6"
        rates: dict[str, list[float]] = {"raw": [], "convmem": []}
        for _ in range(3):
            for kind, seen in rates.items():
                contenders.fill(self.alias, f"writers-{kind}", 2)
                seen.append(throughput(kind, self.alias, f"writers-{kind}"))
        raw, ours = (sorted(rates[kind])[1] for kind in ("raw", "convmem"))
        return self._title("8 processes x 100 turns, one conversation"), [
            (f"raw driver: {raw:,.0f} turns/s", None, ""),
            (f"convmem: {ours:,.0f} turns/s = {ours / raw:.2f} x", None, bar),
        ]

    def _rows(
        self,
        calls: dict[str, Callable[[], object]],
        bars: dict[str, str],
        *,
        rounds: int | None = None,
    ) -> list[Row]:
        (_, floor), *contestants = calls.items()
        return [
            (
                name,
                compare(floor, call, rounds=rounds or self.rounds),
                bars.get(name, ""),
            )
            for name, call in contestants
        ]


def _bind(call: Callable[..., object], *args: object) -> Callable[[], object]:
    return lambda: call(*args)
