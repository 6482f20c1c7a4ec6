"""Calls of a model: flows and their drivers, filters, tools, the stateless kernel.

Pure: no Django, no HTTP, no settings. Nothing is imported here, so that an app can set
the kernel up at start (`convmem.kernel.services`) without loading the schema library.
"""

from __future__ import annotations
