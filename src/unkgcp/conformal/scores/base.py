"""What a nonconformity score must offer, and the registry through which calibrators find scores by name.

A score says how strange a label is beside a prediction; larger is stranger. It is not a calibrator: it sees
no calibration set and knows no level. Adding one is a file with a registered class:

    @register
    @dataclass(frozen=True)
    class MyScore:
        name = "mine"
        ...
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Threshold = Floats | np.floating[Any]
Limits = tuple[float, float]


class Score(Protocol):
    """A nonconformity score and its exact inverse, over arrays of one float dtype.

    `bounds` inverts `score` to the last bit: for every float y between the limits,
    lower <= y <= upper holds exactly when score(prediction, y, scale) <= threshold. So the labels with
    score(y) <= threshold must form an interval that grows with the threshold. Parameters are dataclass fields
    (numbers), so that a saved calibration can name them.
    """

    name: ClassVar[str]
    takes_scale: ClassVar[bool]
    """Whether the caller has to give a scale for every query."""
    prediction_ndim: ClassVar[int]
    """1 for one number a query, 2 for a row of numbers a query (two quantiles, a distribution)."""
    centred: ClassVar[bool]
    """Whether the score is |prediction - truth| over what `prepare` returns, for which ends are compiled."""

    def prepare(self, prediction: Floats, scale: Floats | None) -> Floats | None:
        """What `score` and `bounds` get as `scale`: computed once a query, shared by all levels."""
        ...

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None) -> Floats:
        """Nonconformity of each label: (n,), never NaN for finite input."""
        ...

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        """Smallest and largest label whose score is at most `threshold` (one, or one a query), within limits.

        Two new arrays (n,). Where no label qualifies the lower end exceeds the upper one.
        """
        ...


_SCORES: dict[str, type[Any]] = {}
ScoreClass = TypeVar("ScoreClass", bound=type[Any])


def register(score: ScoreClass) -> ScoreClass:
    """Class decorator: makes a score available by its name."""
    if score.name in _SCORES:
        raise ValueError(f"there is already a score named {score.name!r}")
    _SCORES[score.name] = score
    return score


def score_names() -> list[str]:
    return sorted(_SCORES)


def make_score(name: str, **parameters: float) -> Score:
    """The registered score of that name."""
    if name not in _SCORES:
        raise ValueError(f"no nonconformity score is named {name!r}; there are {', '.join(score_names())}")
    score: Score = _SCORES[name](**parameters)
    return score


def score_parameters(score: Score) -> dict[str, float]:
    """The numbers with which `make_score(score.name, ...)` builds an equal score."""
    if _SCORES.get(score.name) is not type(score):
        raise ValueError(
            f"the score {score.name!r} is not registered, so it could not be found again by name"
        )
    return asdict(score)  # type: ignore[call-overload, no-any-return]
