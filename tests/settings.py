"""Settings of the test suite. ``CONVMEM_TEST_DATABASE`` is a database URL's scheme:
sqlite (default), postgresql or mysql."""

from __future__ import annotations

from project.settings import *  # noqa: F403
