"""What is measured, and the bars that the figures are held against."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Iterator

from benchmarks import contenders, peers
from benchmarks.plain.models import PlainStore
from benchmarks.timing import Pair, compare
from benchmarks.writers import throughput
from convmem.memory import DefaultMemoryProvider, TokenWindow

Row = tuple[str, Pair | None, str]
#: A run of the writers takes a fraction of a second, much of it in the scheduler.
WRITER_ROUNDS = 9
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
        for size in self.sizes:
            yield self._title(f"load the newest 20 of {size:,}"), self._newest(size)
            title = f"load the newest that fit 2,000 tokens of {size:,}"
            yield self._title(title), self._fitting(size)
        for size in self.sizes:
            yield self._title(f"load all {size:,}"), self._everything(size)
        if len(self.sizes) > 1:
            yield self._flat()
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

    def _flat(self) -> tuple[str, list[Row]]:
        """Compare the largest size with the smallest, as pairs of their own."""
        small, large = f"load-{min(self.sizes)}", f"load-{max(self.sizes)}"

        def growth(call: Callable[..., object], *args: object) -> float:
            early, late = _bind(call, small, *args), _bind(call, large, *args)
            return compare(early, late, rounds=self.rounds).ratio

        floor = self.floor
        beside = growth(lambda name: floor.newest(contenders.key(name), 20))
        rows: list[Row] = []
        for label, store in self.stores.items():
            memory = DefaultMemoryProvider(store, window=TokenWindow(2000))
            for what, ratio in {
                "newest 20": growth(store.newest, 20),
                "2,000 tokens": growth(memory.history),
            }.items():
                text = f"{label}, {what}: {ratio:.2f} (floor {beside:.2f})"
                rows.append((text, None, "<= 1.2"))
        title = f"time at {max(self.sizes):,} / time at {min(self.sizes):,}"
        return self._title(title), rows

    def _writers(self) -> tuple[str, list[Row]]:
        bar = ">= 0.5" if self.name == "sqlite" else ">= 0.6"
        aliases = {label: store.database for label, store in self.stores.items()}
        rates: dict[str, list[float]] = {label: [] for label in ("raw", *aliases)}
        for _ in range(WRITER_ROUNDS):
            for label, seen in rates.items():
                name = f"writers-{label}"
                contenders.fill(self.alias, name, 2)
                kind, alias = (
                    ("convmem", aliases[label])
                    if label in aliases
                    else ("raw", self.alias)
                )
                seen.append(throughput(kind, alias, name))
        medians = {label: statistics.median(seen) for label, seen in rates.items()}
        raw = medians.pop("raw")
        rows: list[Row] = [(f"raw driver: {raw:,.0f} turns/s", None, "")]
        for label, rate in medians.items():
            text = f"{label}: {rate:,.0f} turns/s = {rate / raw:.2f} x"
            rows.append((text, None, bar))
        return self._title("8 processes x 100 turns, one conversation"), rows

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
