"""What a Django project would write by hand: the plain ORM contender."""

from __future__ import annotations
