"""Whose conversations a request may touch: the one rule that every face asks."""

from __future__ import annotations

from typing import Any

from convmem.conf import settings
from convmem.exceptions import ConfigurationError
from convmem.owners import NOBODY, Owner, check_owner


def user_owner(request: Any) -> Owner | None:
    """Return ``Owner("user", <pk>)`` of the authenticated user, else None.

    The default of ``CONVMEM["OWNER"]``.
    """
    user = getattr(request, "user", None)
    if user is None or not user.is_authenticated:
        return None
    return Owner(name="user", id=str(user.pk))


def owner_of(request: Any) -> Owner | None:
    """Return the owner that ``CONVMEM["OWNER"]`` names for ``request`` (Django's or
    DRF's), or None when it has none.

    `NOBODY` counts as none: conversations without an owner belong to the project's own
    code, and no request reaches them. Raises `ConfigurationError` when the function
    returns anything but an `Owner` or None, `InvalidOwner` when its texts are too long.
    """
    owner = settings.owner(request)
    if owner is None or owner == NOBODY:
        return None
    if not isinstance(owner, Owner):
        raise ConfigurationError(
            'The function in CONVMEM["OWNER"] must return a convmem Owner or None, '
            f"not {type(owner).__name__}."
        )
    return check_owner(owner)
