"""Settings of the test suite.

Everything runs on SQLite (a file, set up as a project should set it up), and on two
more databases, on PostgreSQL with either way of binding parameters::

    CONVMEM_TEST_DATABASE=postgresql python -m pytest
    CONVMEM_TEST_DATABASE=postgresql-bound python -m pytest tests/stores
    CONVMEM_TEST_DATABASE=mysql python -m pytest tests/stores

Where the servers are is said by ``PGHOST PGPORT PGUSER PGPASSWORD``, ``MYSQL_HOST
MYSQL_PORT MYSQL_USER MYSQL_PASSWORD`` and ``CONVMEM_TEST_REDIS_URL``; the defaults are
local servers that trust local users. MariaDB and MySQL are spoken to with PyMySQL. A
server that does not answer skips its tests with a reason, unless ``CI=true``: then they
fail.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from project.settings import *  # noqa: F403

DATABASE = os.environ.get("CONVMEM_TEST_DATABASE", "sqlite")
REDIS_URL = os.environ.get("CONVMEM_TEST_REDIS_URL", "redis://127.0.0.1:6379/9")


def _sqlite() -> dict[str, object]:
    folder = Path(tempfile.gettempdir()) / f"convmem-tests-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": folder / "none.sqlite3",
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
        # A file, so that other processes can open it.
        "TEST": {"NAME": folder / f"test-{os.getpid()}.sqlite3"},
    }


def _postgresql() -> dict[str, object]:
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "convmem",
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", "5432"),
        "USER": os.environ.get("PGUSER", "postgres"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "TEST": {"NAME": f"test_convmem_{os.getpid()}"},
    }


def _postgresql_bound() -> dict[str, object]:
    options = {"server_side_binding": True, "prepare_threshold": 2}
    return {**_postgresql(), "OPTIONS": options}


def _mysql() -> dict[str, object]:
    import pymysql

    # Django asks for mysqlclient's version; PyMySQL tells its own.
    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": "convmem",
        "HOST": os.environ.get("MYSQL_HOST", "127.0.0.1"),
        "PORT": os.environ.get("MYSQL_PORT", "3306"),
        "USER": os.environ.get("MYSQL_USER", "root"),
        "PASSWORD": os.environ.get("MYSQL_PASSWORD", ""),
        "OPTIONS": {"charset": "utf8mb4"},
        "TEST": {
            "NAME": f"test_convmem_{os.getpid()}",
            "CHARSET": "utf8mb4",
            "COLLATION": "utf8mb4_general_ci",
        },
    }


KINDS = {
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgresql-bound": _postgresql_bound,
    "mysql": _mysql,
}
DATABASES = {"default": KINDS[DATABASE]()}
if "CONVMEM_TEST_NAME" in os.environ:  # a process that a test has started
    DATABASES["default"]["NAME"] = os.environ["CONVMEM_TEST_NAME"]
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "redis": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
    },
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
