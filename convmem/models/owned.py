"""Rows that belong to an owner, found exactly on every database."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from django.db import connections, models
from django.db.models.lookups import Exact

from convmem.owners import Owner

M = TypeVar("M", bound=models.Model, covariant=True)


class Bytes(models.Func):
    """The bytes of a text, whatever its collation (MySQL and MariaDB)."""

    template = "CAST(%(expressions)s AS BINARY)"
    output_field = models.BinaryField()


class OwnedQuerySet(models.QuerySet[M]):
    """A queryset of a model with ``owner_name`` and ``owner_id``."""

    def for_owner(self, owner: Owner) -> Self:
        """Return the rows of exactly this owner."""
        return self.exactly(owner_name=owner.name, owner_id=owner.id)

    def exactly(self, **values: str) -> Self:
        """Return the rows whose text columns equal ``values`` to the byte.

        The collations of MySQL and MariaDB equate ``t``, ``T`` and ``t ``; there the
        index finds the candidates and the bytes decide.
        """
        found = self.filter(**values)
        if connections[self.db].vendor != "mysql":
            return found
        same: list[Any] = [
            Exact(Bytes(models.F(name)), Bytes(models.Value(value)))
            for name, value in values.items()
        ]
        return found.filter(*same)


OwnedManager = models.Manager.from_queryset(OwnedQuerySet)
