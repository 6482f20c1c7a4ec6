"""``python -m benchmarks``: measure, and print Markdown tables."""

from __future__ import annotations

import argparse
import os
import platform
import sqlite3

import django
import psycopg

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")

from benchmarks import settings
from benchmarks.timing import Pair


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000", help="earlier messages")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    databases = options.database or ["sqlite", "postgres"]
    _prepare(databases)
    from benchmarks.suite import Suite

    sizes = [int(size) for size in options.sizes.split(",")]
    _print_head()
    for name in databases:
        suite = Suite(name, sizes, options.rounds, peers=not options.no_peers)
        for title, rows in suite.tables():
            _print_table(title, rows)


def _prepare(databases: list[str]) -> None:
    """Make empty databases with the tables of this version."""
    settings.SQLITE_FILE.unlink(missing_ok=True)
    if "postgres" in databases:
        pg = {**settings.POSTGRES}
        name = pg.pop("NAME")
        with psycopg.connect(
            host=pg["HOST"],
            port=pg["PORT"],
            user=pg["USER"],
            password=pg["PASSWORD"],
            dbname="postgres",
            autocommit=True,
        ) as db:
            db.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            db.execute(f'CREATE DATABASE "{name}"')
    django.setup()
    from django.core.management import call_command

    for alias in ["default"] + (["postgres"] if "postgres" in databases else []):
        call_command("migrate", database=alias, run_syncdb=True, verbosity=0)


def _print_head() -> None:
    durable = "fully durable" if settings.DURABLE else "relaxed on both sides"
    print(f"Python {platform.python_version()}, Django {django.__version__},", end=" ")
    print(f"SQLite {sqlite3.sqlite_version}, psycopg {psycopg.__version__};", end=" ")
    print(f"durability {durable}; medians; x = times the raw driver in this run.\n")


def _print_table(title: str, rows: list[tuple[str, Pair | None, str]]) -> None:
    print(f"### {title}\n")
    if any(pair is not None for _, pair, _ in rows):
        print("| | µs | floor µs | x floor | bar |\n|---|--:|--:|--:|---|")
    else:
        print("| | bar |\n|---|---|")
    for name, pair, bar in rows:
        if pair is None:
            print(f"| {name} | {bar} |")
        else:
            figures = f"{pair.time:,.0f} | {pair.floor:,.0f} | {pair.ratio:.2f}"
            print(f"| {name} | {figures} | {bar} |")
    print(flush=True)


if __name__ == "__main__":
    main()
