"""Indexes over a part of a table where the database has them, over all of it where it
has not.

Django can declare a condition, but on MariaDB and MySQL it then leaves the index away
and warns. Ours is always made: most rows have no append key and are no system message,
so where partial indexes exist (SQLite, PostgreSQL) an append does not touch them.
"""

from __future__ import annotations

from typing import Any

from django.db import models


class PartialIndex(models.Index):
    """An index of the rows that match ``where`` (a named `Q`), or of all rows."""

    def __init__(self, *, fields: list[str], name: str, where: models.Q) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where

    def deconstruct(self) -> Any:
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "where": self.where}

    def create_sql(
        self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any
    ) -> Any:
        index = models.Index(
            fields=self.fields,
            name=self.name,
            condition=_supported(self.where, schema_editor),
        )
        return index.create_sql(model, schema_editor, using, **kwargs)


class PartialUniqueConstraint(models.UniqueConstraint):
    """Uniqueness of nullable ``fields`` among the rows that match ``where``.

    ``where`` may only leave out rows with a NULL in ``fields``: those never collide,
    so that the whole-table form means the same.
    """

    def __init__(self, *, fields: tuple[str, ...], name: str, where: models.Q) -> None:
        super().__init__(fields=fields, name=name)
        self.where = where

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartialUniqueConstraint) and self.where != other.where:
            return False
        return super().__eq__(other)

    def __hash__(self) -> int:
        return hash((self.name, self.fields))

    def deconstruct(self) -> Any:
        path, args, kwargs = super().deconstruct()
        return path, args, {**kwargs, "where": self.where}

    def constraint_sql(self, model: Any, schema_editor: Any) -> Any:
        return self._plain(schema_editor).constraint_sql(model, schema_editor)

    def create_sql(self, model: Any, schema_editor: Any) -> Any:
        return self._plain(schema_editor).create_sql(model, schema_editor)

    def remove_sql(self, model: Any, schema_editor: Any) -> Any:
        return self._plain(schema_editor).remove_sql(model, schema_editor)

    def _plain(self, schema_editor: Any) -> models.UniqueConstraint:
        return models.UniqueConstraint(
            fields=self.fields,
            name=self.name,
            condition=_supported(self.where, schema_editor),
        )


def _supported(where: models.Q, schema_editor: Any) -> models.Q | None:
    features = schema_editor.connection.features
    return where if features.supports_partial_indexes else None
