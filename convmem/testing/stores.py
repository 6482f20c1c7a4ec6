"""The contract of stores as a test suite, for every backend, also your own::

    from convmem.testing.stores import StoreContract

    class TestMyStore(StoreContract):
        def make_store(self, namespace):
            return MyStore(namespace=namespace)

Each test runs twice: through the verbs and through their ``a`` twins. It needs pytest;
mark the class with ``pytest.mark.django_db`` when the store uses the database.
"""

from __future__ import annotations

import pytest

# Before the import, so that a failing assertion shows its values.
pytest.register_assert_rewrite("convmem.testing.storecontract")

from convmem.testing.storecontract.basics import BasicsContract  # noqa: E402
from convmem.testing.storecontract.keys import KeysContract  # noqa: E402
from convmem.testing.storecontract.reads import ReadsContract  # noqa: E402

__all__ = ["BasicsContract", "KeysContract", "ReadsContract", "StoreContract"]


class StoreContract(BasicsContract, KeysContract, ReadsContract):
    """What every store does. Subclass it and write `make_store`."""
