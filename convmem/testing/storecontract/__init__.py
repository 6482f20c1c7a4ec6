"""The parts of `convmem.testing.stores.StoreContract`."""

from __future__ import annotations
