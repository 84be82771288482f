"""The version, told once; CHANGELOG.md says what is new in it. `.dev0` until it is released."""

from __future__ import annotations

__version__ = "0.2.0.dev0"
