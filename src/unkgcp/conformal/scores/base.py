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

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

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


class LearnedScore(Score, Protocol):
    """A score made by a `Recipe`; `arrays` is all it learned."""

    @property
    def kinds(self) -> NDArray[Any] | None:
        """Labels of kinds of predictions that it tells apart; None if predictions come without a kind."""

    def arrays(self) -> dict[str, NDArray[Any]]: ...

    def places(self, kind: NDArray[Any]) -> NDArray[np.intp]:
        """What `prepare` takes as scale for predictions of these kinds: (n,)."""
        ...


@runtime_checkable
class Recipe(Protocol):
    """A score that has yet to be learned from labelled predictions: a part of the calibration points teaches it,
    the others are ranked by it. Parameters are dataclass fields, as those of a score.
    """

    name: ClassVar[str]

    def learning_rows(self, size: int) -> NDArray[np.bool_] | None:
        """Which of `size` points to learn from, chosen by their position alone; None: too few to learn from."""
        ...

    def learn(self, prediction: Floats, truth: Floats, kind: NDArray[Any] | None) -> LearnedScore: ...

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LearnedScore:
        """The score whose `arrays` these are; ValueError or KeyError if they are no such thing."""
        ...

    def fallback(self) -> Score:
        """The score for too few points."""
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
    """Scores that are ready to use."""
    return sorted(name for name, kind in _SCORES.items() if not hasattr(kind, "learn"))


def recipe_names() -> list[str]:
    """Scores that calibration has to learn first."""
    return sorted(name for name, kind in _SCORES.items() if hasattr(kind, "learn"))


def make_score(name: str, **parameters: float) -> Score | Recipe:
    """The registered score (or recipe of one) of that name."""
    if name not in _SCORES:
        raise ValueError(f"no nonconformity score is named {name!r}; there are {', '.join(sorted(_SCORES))}")
    score: Score | Recipe = _SCORES[name](**parameters)
    return score


def score_parameters(score: Score | Recipe) -> dict[str, float]:
    """The numbers with which `make_score(score.name, ...)` builds an equal score."""
    if _SCORES.get(score.name) is not type(score):
        raise ValueError(
            f"the score {score.name!r} is not registered, so it could not be found again by name"
        )
    return asdict(score)  # type: ignore[call-overload, no-any-return]
