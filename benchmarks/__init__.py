"""Speed of the store, as ratios to the raw driver and to peers in one run."""

from __future__ import annotations
