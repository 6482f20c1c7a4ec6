"""What may be missing: optional packages, and what older Djangos lack."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from convmem.exceptions import MissingDependency


def require(name: str, extra: str) -> ModuleType:
    """Return the optional module ``name``, which ``django-convmem[extra]`` installs.

    Raises `MissingDependency` with the command to run when it is not installed. A
    module that is there but fails to import raises its own error.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise MissingDependency(
            f"{name} is not installed; run: "
            f'python -m pip install "django-convmem[{extra}]"',
            module=name,
            extra=extra,
        ) from error
