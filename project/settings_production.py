"""An example of production settings: PostgreSQL, Redis, HTTPS, nothing by accident.

``manage.py check --deploy`` passes on it. Environment, all without a default unless
given: ``SECRET_KEY``, ``ALLOWED_HOSTS`` (comma-separated), ``OPENAI_API_KEY``,
``OPENAI_MODEL`` (gpt-4o-mini), libpq's ``PGHOST``, ``PGUSER``, ``PGPASSWORD`` and
``PGDATABASE`` (convmem), ``REDIS_URL`` (redis://127.0.0.1:6379/0).
"""

from __future__ import annotations

import os

from project.settings import *  # noqa: F403
from project.settings import MIDDLEWARE as DEMO_MIDDLEWARE

DEBUG = False
SECRET_KEY = os.environ["SECRET_KEY"]
ALLOWED_HOSTS = os.environ["ALLOWED_HOSTS"].split(",")

CONVMEM = {
    "STORES": {"default": {"BACKEND": "convmem.stores.DatabaseStore"}},
    "SERVICES": {
        "default": {
            "BACKEND": "convmem.clients.HttpChatService",
            "OPTIONS": {
                "PROVIDER": "openai",
                "MODEL": os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
                # The variable's name, not the key: settings are printed and logged.
                "API_KEY_ENV": "OPENAI_API_KEY",
            },
        },
    },
}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "convmem"),
        # Under ASGI each thread would keep a connection of its own: pool them instead.
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"pool": True},
        # A failing model call must not roll back what the user wrote.
        "ATOMIC_REQUESTS": False,
    },
}
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
    },
}

# --- HTTPS: a proxy in front ends TLS and sets this header ---
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
SECURE_HSTS_SECONDS = 365 * 24 * 3600
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True

# --- static files: hashed names, served by the application itself ---
MIDDLEWARE = [
    DEMO_MIDDLEWARE[0],
    "whitenoise.middleware.WhiteNoiseMiddleware",
    *DEMO_MIDDLEWARE[1:],
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
