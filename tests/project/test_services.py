"""The environment chooses the model."""

from __future__ import annotations

import os

import httpx
import pytest
from django.conf import settings

from project.services import chat_service, is_offline, label, running_model


def options(**environ: str) -> dict[str, str]:
    return chat_service(environ)["OPTIONS"]


def test_offline_when_nothing_is_set():
    assert options() == {
        "PROVIDER": "custom",
        "MODEL": "offline",
        "BASE_URL": "http://127.0.0.1:8765/v1",
    }
    assert options(CONVMEM_OFFLINE_URL="http://127.0.0.1:1/v1")["BASE_URL"] == (
        "http://127.0.0.1:1/v1"
    )


def test_openai_names_the_variable_and_never_holds_the_key():
    service = chat_service({"OPENAI_API_KEY": "sk-secret", "OLLAMA_HOST": "x"})
    assert service["OPTIONS"]["PROVIDER"] == "openai"
    assert service["OPTIONS"]["API_KEY_ENV"] == "OPENAI_API_KEY"
    assert "sk-secret" not in repr(service)
    assert not is_offline(service)
    assert "sk-secret" not in label(service)


def test_openai_model_and_address():
    chosen = options(
        OPENAI_API_KEY="k", OPENAI_MODEL="m", OPENAI_BASE_URL="http://h/v1"
    )
    assert (chosen["MODEL"], chosen["BASE_URL"]) == ("m", "http://h/v1")


def test_offline_can_be_asked_for():
    service = chat_service({"OPENAI_API_KEY": "k", "CONVMEM_OFFLINE": "1"})
    assert is_offline(service)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":9000", "http://127.0.0.1:9000/v1"),
        ("gpu.example.com", "http://gpu.example.com:11434/v1"),
        ("http://gpu:11434/", "http://gpu:11434/v1"),
        ("https://ollama.example.com:443/v1", "https://ollama.example.com:443/v1"),
    ],
)
def test_ollama_host(host, url):
    assert options(OLLAMA_HOST=host, OLLAMA_MODEL="m") == {
        "PROVIDER": "ollama",
        "MODEL": "m",
        "BASE_URL": url,
    }


def test_running_model_starts_one_and_points_the_settings_at_it(monkeypatch):
    monkeypatch.setenv("CONVMEM_OFFLINE", "1")
    monkeypatch.delenv("CONVMEM_OFFLINE_URL", raising=False)
    before = settings.CONVMEM
    with running_model() as service:
        url = service["OPTIONS"]["BASE_URL"]
        assert settings.CONVMEM["SERVICES"]["default"] == service
        assert os.environ["CONVMEM_OFFLINE_URL"] == url
        assert httpx.get(f"{url}/models").status_code == 200
    assert before == settings.CONVMEM
    assert "CONVMEM_OFFLINE_URL" not in os.environ


def test_running_model_leaves_another_service_alone(monkeypatch):
    monkeypatch.delenv("CONVMEM_OFFLINE", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with running_model() as service:
        assert service["OPTIONS"]["PROVIDER"] == "openai"
