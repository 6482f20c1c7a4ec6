"""Settings of the demo project: SQLite, the admin, convmem and its API.

Meant for a laptop. What a server needs differently is in ``settings_production``.
Environment: ``CONVMEM_DEMO_DIR`` (where the database lies, default ``var/``),
``SECRET_KEY``, ``DEBUG`` (``0`` switches it off), and the variables that choose the
model, see `project.services.chat_service`.
"""

from __future__ import annotations

import os
from pathlib import Path

from project.services import chat_service

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(os.environ.get("CONVMEM_DEMO_DIR", BASE_DIR / "var"))

SECRET_KEY = os.environ.get("SECRET_KEY", "demo-only-not-a-secret")
DEBUG = os.environ.get("DEBUG", "1") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

CONVMEM = {
    # Each store alias has its own conversations.
    "STORES": {"default": {"BACKEND": "convmem.stores.DatabaseStore"}},
    # OpenAI, Ollama or the offline model, by what the environment offers.
    "SERVICES": {"default": chat_service(os.environ)},
}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rest_framework.authentication.BasicAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "convmem",
    "project.apps.ProjectConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "project.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": VAR_DIR / "demo.sqlite3",
        "OPTIONS": {
            # Take the write lock at BEGIN: a later upgrade cannot wait for it.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # Readers do not wait for the writer; a commit outlives a killed process.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    },
}

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
