"""For all tests of reading."""

from __future__ import annotations

import pytest

from unkgcp.graph.formats import blocks


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks of a few lines, so that small files have many of them."""
    monkeypatch.setattr(blocks, "BLOCK", 64)
