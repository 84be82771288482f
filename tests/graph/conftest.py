"""For all tests of reading."""

from __future__ import annotations

import pytest

from unkgcp.tabular import delimited


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks of a few lines, so that small files have many of them, in threads as those of large files are."""
    monkeypatch.setattr(delimited, "BLOCK", 64)
    monkeypatch.setattr(delimited, "SAMPLE", 0)
