"""Asking a run that may not be what it seems."""

from __future__ import annotations

from pathlib import Path

import pytest

from unkgcp.errors import InputError
from unkgcp.run import Predictor


def ask(run: Path) -> None:
    """Use everything that a run holds."""
    predictor = Predictor.load(run)
    predictor.interval([("entity 1", "r1", "entity 2")])
    assert predictor.facts is not None
    assert len(predictor.facts)


def refused(run: Path) -> str:
    """The sentence with which a run is refused, when it is loaded or when its facts are asked for."""
    with pytest.raises(InputError) as caught:
        ask(run)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert str(run) in sentence
    return sentence
