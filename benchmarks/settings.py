"""Databases of the benchmark. Both sides of a pair have the same durability: SQLite
with WAL and synchronous NORMAL (or FULL), PostgreSQL with synchronous_commit off (or
on), chosen by ``CONVMEM_BENCH_DURABLE``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

DURABLE = os.environ.get("CONVMEM_BENCH_DURABLE") == "1"
FOLDER = Path(os.environ.get("CONVMEM_BENCH_DIR", tempfile.gettempdir()))
SQLITE_FILE = FOLDER / "convmem-bench.sqlite3"
SYNCHRONOUS = "FULL" if DURABLE else "NORMAL"

POSTGRES = {
    "NAME": os.environ.get("CONVMEM_BENCH_PG_NAME", "convmem_bench"),
    "USER": os.environ.get("PGUSER", "postgres"),
    "PASSWORD": os.environ.get("PGPASSWORD", ""),
    "HOST": os.environ.get("PGHOST", "127.0.0.1"),
    "PORT": os.environ.get("PGPORT", "5432"),
}
PG_OPTIONS = f"-c synchronous_commit={'on' if DURABLE else 'off'}"

SECRET_KEY = "benchmark"
USE_TZ = True
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "convmem",
    "benchmarks.plain",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": SQLITE_FILE,
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 60,
            "init_command": (
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous={SYNCHRONOUS};"
            ),
        },
    },
    "postgres": {
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": None,
        "OPTIONS": {"options": PG_OPTIONS},
        **POSTGRES,
    },
    "postgres_bound": {
        "ENGINE": "django.db.backends.postgresql",
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "options": PG_OPTIONS,
            "server_side_binding": True,
            "prepare_threshold": 2,
        },
        **POSTGRES,
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
