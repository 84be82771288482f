"""Nonconformity scores, found by name: the residual, plain or in units of a scale, and what a new one has to offer.

A score says how strange a label is for a prediction; larger is stranger. It sees no calibration set and knows no level.
Any score keeps the guarantee; a good one makes narrow intervals. To add one, register a class:

    @register_score
    @dataclass(frozen=True)
    class Above(Score):
        name = "above"

        def ends(self, prediction, threshold, scale=None):
            return prediction - 0.1 * threshold, prediction + threshold

        def estimate(self, prediction, truth, scale=None):
            return np.where(truth > prediction, truth - prediction, 10 * (prediction - truth))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.arrays import Floats
from unkgcp.lazy import import_allowed

Threshold = Floats | np.floating[Any]
"""One threshold for all queries, or one for each: (n,)."""
Limits = tuple[float, float]


# Subtraction, division and multiplication round once each. A threshold that is a little larger makes up for that, so
# that the label of a calibration point lies in the interval at its own score; the second number counts next to 0 only.
_EPSILON, _SMALLEST = float(np.finfo(np.float64).eps), float(np.nextafter(0, 1))


def outwards(value: Any) -> Any:
    """A number a little above each value: by more than four roundings."""
    return value * (1 + 4 * _EPSILON) + _SMALLEST


class Score(ABC):
    """A nonconformity score, given by the intervals that it makes: `ends`; `estimate` is the formula near the score.

    The score of a label is a threshold whose interval contains it, and intervals grow with the threshold. So a
    calibration is exact in floats, whatever is rounded on the way. Parameters of a score are dataclass fields
    (numbers), which a saved calibration stores by name.
    """

    name: ClassVar[str]
    takes_scale: ClassVar[bool] = False
    """Whether the caller has to give a scale for every query."""

    @abstractmethod
    def ends(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Lower and upper ends of the interval of each query: (n,) each; at inf everything, at -inf nothing."""

    @abstractmethod
    def estimate(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        """About the smallest threshold at which the interval contains the label: (n,), never NaN for finite input."""

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats | None:
        """What the other methods take as `scale`. It is computed once for each query and serves all levels."""
        return scale

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        """The estimate, made larger where its interval does not contain the label: (n,)."""
        value = np.array(self.estimate(prediction, truth, scale), np.float64)
        for power in range(64):
            lower, upper = self.ends(prediction, value, scale)
            outside = ~((lower <= truth) & (truth <= upper))
            if not outside.any():
                return value
            value[outside] += 2.0**power * (_EPSILON * np.abs(value[outside]) + _SMALLEST)
        raise ValueError(f"the {self.name} score has ends that do not contain labels at their estimates")

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        """The ends cut to the limits; where no label qualifies, the lower one exceeds the upper one."""
        lower, upper = self.ends(prediction, threshold, scale)
        return np.maximum(lower, limits[0]), np.minimum(upper, limits[1])


class LearnedScore(Score):
    """A score that a `Recipe` learned."""

    kinds: NDArray[Any] | None
    """Labels of the kinds of predictions that the score tells apart; None if predictions come without a kind."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learned, for saving."""

    @abstractmethod
    def kind_codes(self, kind: NDArray[Any]) -> NDArray[np.intp]:
        """The numbers that `prepare` takes as scale for predictions of these kinds: (n,)."""


class Recipe(ABC):
    """A score that has yet to be learned: a part of the calibration points teaches it, the others are ranked by it.

    Parameters are dataclass fields, as those of a score.
    """

    name: ClassVar[str]

    @abstractmethod
    def learning_rows(self, size: int) -> NDArray[np.bool_] | None:
        """Which of `size` points teach the score, chosen by position alone; None if there are too few to learn from."""

    @abstractmethod
    def learn(self, prediction: Floats, truth: Floats, kind: NDArray[Any] | None) -> LearnedScore: ...

    @abstractmethod
    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LearnedScore:
        """The score whose `arrays` these are; ValueError or KeyError if they belong to no such score."""

    @abstractmethod
    def fallback(self) -> Score:
        """The score that is used where there are too few points to learn from."""


_SCORES: dict[str, type[Any]] = {}
ScoreClass = TypeVar("ScoreClass", bound=type[Any])


def register_score(score: ScoreClass) -> ScoreClass:
    """Class decorator that makes a score, or a recipe of one, available by its name."""
    if score.name in _SCORES:
        raise ValueError(f"there is already a score named {score.name!r}")
    _SCORES[score.name] = score
    return score


def score_names() -> list[str]:
    """Names of the scores that need no learning."""
    return sorted(name for name, kind in _SCORES.items() if not issubclass(kind, Recipe))


def recipe_names() -> list[str]:
    """Names of the scores that calibration learns first."""
    return sorted(name for name, kind in _SCORES.items() if issubclass(kind, Recipe))


def make_score(name: str, **parameters: float) -> Score | Recipe:
    """The registered score, or recipe of a score, with that name."""
    if name not in _SCORES:
        raise ValueError(f"no nonconformity score is named {name!r}; there are {', '.join(sorted(_SCORES))}")
    score: Score | Recipe = _SCORES[name](**parameters)
    return score


def score_of(reference: str) -> Score:
    """The registered score that needs no learning, by its name or as `reference_of` says it."""
    module, _, name = reference.rpartition(":")
    if module and name not in _SCORES:
        import_allowed(module, f"the score {name}", "unkgcp.register_score")
    if name not in score_names():
        raise ValueError(f"no nonconformity score is named {name!r}; there are {', '.join(score_names())}")
    score: Score = _SCORES[name]()
    return score


def reference_of(score: Score) -> str:
    """The name of a score; before that of one from outside the package its module, and a colon."""
    module = type(score).__module__
    return score.name if module.startswith("unkgcp.") else f"{module}:{score.name}"


def score_parameters(score: Score | Recipe) -> dict[str, float]:
    """The parameters with which `make_score(score.name, ...)` builds an equal score."""
    if _SCORES.get(score.name) is not type(score):
        raise ValueError(
            f"the score {score.name!r} is not registered, so it could not be found again by name"
        )
    return asdict(score)  # type: ignore[call-overload, no-any-return]


@register_score
@dataclass(frozen=True)
class Residual(Score):
    """s = |prediction - truth|; the interval at threshold q is prediction -+ q (the paper's CP).

    >>> Residual().score(np.array([0.5]), np.array([0.75]))
    array([0.25])
    """

    name: ClassVar[str] = "residual"

    def ends(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None = None
    ) -> tuple[Floats, Floats]:
        radius = outwards(threshold)
        if scale is not None:
            radius = radius * scale + _SMALLEST
        return prediction - radius, prediction + radius

    def estimate(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        residual = np.abs(prediction - truth)
        return residual if scale is None else residual / scale

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        return self.estimate(prediction, truth, scale)  # its ends are wide enough


@register_score
@dataclass(frozen=True)
class ScaledResidual(Residual):
    """s = |prediction - truth| / scale; the interval at threshold q is prediction -+ q scale.

    It fits predictions whose errors differ in size. Any positive scale keeps the guarantee, as long as it was chosen
    without the calibration labels.

    >>> ScaledResidual().score(np.array([0.5]), np.array([0.75]), np.array([0.5]))
    array([0.5])
    """

    name: ClassVar[str] = "scaled"
    takes_scale: ClassVar[bool] = True


CLIP = 1e-6


@register_score
@dataclass(frozen=True)
class EntropyResidual(ScaledResidual):
    """s = |M - truth| / H(M), the paper's adaptive measure: H is the entropy of the predicted confidence M, in nats.

    Before the entropy is taken, M is mapped to slope M + offset (the reference experiments on CN15k use 0.5 M + 0.5)
    and clipped to [1e-6, 1 - 1e-6]; the residual uses M itself. The clip keeps H above 1.4e-5, so that no score is
    infinite.

    >>> EntropyResidual().prepare(np.array([0.5]))
    array([0.69314718])
    """

    name: ClassVar[str] = "entropy"
    takes_scale: ClassVar[bool] = False

    slope: float = 1.0
    offset: float = 0.0

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        """H(M) = -M log M - (1 - M) log(1 - M): (n,)."""
        mass = np.clip(prediction * self.slope + self.offset, CLIP, 1 - CLIP)
        rest = 1 - mass
        return np.asarray(-(mass * np.log(mass) + rest * np.log(rest)))
