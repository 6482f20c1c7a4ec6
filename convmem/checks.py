"""System checks; their ids are stable."""

from __future__ import annotations
