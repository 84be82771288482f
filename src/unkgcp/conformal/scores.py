"""Nonconformity scores, each with its exact inverse, found by name: the residual, plain or in units of a scale.

A score says how strange a label is beside a prediction; larger is stranger. It is not a calibrator: it sees
no calibration set and knows no level. Adding one is a registered class:

    @register
    @dataclass(frozen=True)
    class MyScore:
        name = "mine"
        ...
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.inverse import outermost

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


class LearnedScore(Score):
    """A score made by a `Recipe`; `arrays` is all it learned."""

    kinds: NDArray[Any] | None
    """Labels of kinds of predictions that it tells apart; None if predictions come without a kind."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]: ...

    @abstractmethod
    def places(self, kind: NDArray[Any]) -> NDArray[np.intp]:
        """What `prepare` takes as scale for predictions of these kinds: (n,)."""


class Recipe(ABC):
    """A score that has yet to be learned from labelled predictions: a part of the calibration points teaches it,
    the others are ranked by it. Parameters are dataclass fields, as those of a score.
    """

    name: ClassVar[str]

    @abstractmethod
    def learning_rows(self, size: int) -> NDArray[np.bool_] | None:
        """Which of `size` points to learn from, chosen by their position alone; None: too few to learn from."""

    @abstractmethod
    def learn(self, prediction: Floats, truth: Floats, kind: NDArray[Any] | None) -> LearnedScore: ...

    @abstractmethod
    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> LearnedScore:
        """The score whose `arrays` these are; ValueError or KeyError if they are no such thing."""

    @abstractmethod
    def fallback(self) -> Score:
        """The score for too few points."""


_SCORES: dict[str, type[Any]] = {}
_MODULES = {"shortest": "unkgcp.conformal.shortest"}  # imported when the score is first asked for
ScoreClass = TypeVar("ScoreClass", bound=type[Any])


def register(score: ScoreClass) -> ScoreClass:
    """Class decorator: makes a score available by its name."""
    if score.name in _SCORES:
        raise ValueError(f"there is already a score named {score.name!r}")
    _SCORES[score.name] = score
    return score


def score_names() -> list[str]:
    """Scores that are ready to use."""
    return sorted(name for name, kind in _SCORES.items() if not issubclass(kind, Recipe))


def recipe_names() -> list[str]:
    """Scores that calibration has to learn first."""
    for module in _MODULES.values():
        import_module(module)
    return sorted(name for name, kind in _SCORES.items() if issubclass(kind, Recipe))


def make_score(name: str, **parameters: float) -> Score | Recipe:
    """The registered score (or recipe of one) of that name."""
    if name in _MODULES:
        import_module(_MODULES[name])
    if name not in _SCORES:
        known = ", ".join(sorted({*_SCORES, *_MODULES}))
        raise ValueError(f"no nonconformity score is named {name!r}; there are {known}")
    score: Score | Recipe = _SCORES[name](**parameters)
    return score


def score_parameters(score: Score | Recipe) -> dict[str, float]:
    """The numbers with which `make_score(score.name, ...)` builds an equal score."""
    if _SCORES.get(score.name) is not type(score):
        raise ValueError(
            f"the score {score.name!r} is not registered, so it could not be found again by name"
        )
    return asdict(score)  # type: ignore[call-overload, no-any-return]


@register
@dataclass(frozen=True)
class Residual:
    """s = |prediction - truth|; the set at threshold q is [prediction - q, prediction + q] (the paper's CP).

    >>> Residual().score(np.array([0.5]), np.array([0.75]))
    array([0.25])
    """

    name: ClassVar[str] = "residual"
    takes_scale: ClassVar[bool] = False
    centred: ClassVar[bool] = True

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats | None:
        return None

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        residual = np.subtract(prediction, truth)
        return np.abs(residual, out=residual)

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        return ends_within(prediction, threshold, limits)


def ends_within(prediction: Floats, radius: Threshold, limits: Limits) -> tuple[Floats, Floats]:
    """Smallest and largest float whose rounded distance from the prediction is at most `radius`."""
    slack, positive = rounding_slack(radius), limits[0] >= 0
    below = prediction - radius
    below -= slack
    lower = outermost(lambda y, rows: prediction[rows] - y, radius, below, -1, limits[0], positive)
    above = prediction + radius
    above += slack
    upper = outermost(lambda y, rows: y - prediction[rows], radius, above, 1, limits[1], positive)
    return lower, upper


def rounding_slack(values: Any) -> Any:
    """How far beyond each float the numbers reach that still round to it: half a spacing.

    A trifle more for even floats, because the number halfway to the next one rounds to the even of the two.
    With this in a guess it is the right float or its neighbour, even where the end is much closer to zero
    than the prediction, so that half a spacing of the radius is many floats there.
    """
    mask, even, half = _SLACK[values.dtype]
    bits = values.view(mask.dtype) & mask
    bits ^= even
    return bits.view(values.dtype) * half


# the bits of exponent and parity, the bit of parity, and half the spacing of the floats from 1 on
_SLACK: dict[np.dtype[Any], tuple[Any, Any, Any]] = {
    np.dtype(np.float32): (np.uint32(0x7F80_0001), np.uint32(1), np.float32(2**-24)),
    np.dtype(np.float64): (np.uint64(0x7FF0_0000_0000_0001), np.uint64(1), np.float64(2**-53)),
}


@register
@dataclass(frozen=True)
class ScaledResidual:
    """s = |prediction - truth| / scale, where errors differ in size: the set at threshold q is prediction -+ q scale.

    Any positive scale keeps the guarantee, as long as it was chosen without the calibration labels.

    >>> ScaledResidual().score(np.array([0.5]), np.array([0.75]), np.array([0.5]))
    array([0.5])
    """

    name: ClassVar[str] = "scaled"
    takes_scale: ClassVar[bool] = True
    centred: ClassVar[bool] = True

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        if scale is None:
            raise ValueError(f"the {self.name} score needs a scale for every query")
        return scale

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None = None) -> Floats:
        residual = np.subtract(prediction, truth)
        np.abs(residual, out=residual)
        return np.divide(residual, self.prepare(prediction) if scale is None else scale, out=residual)

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        unit = self.prepare(prediction) if scale is None else scale
        guess = unit * threshold
        guess += unit * rounding_slack(threshold)
        radius = outermost(lambda r, rows: r / unit[rows], threshold, guess, 1, np.inf, positive=True)
        return ends_within(prediction, radius, limits)


# Compiled kernels: numba takes a second to load, longer the first time. Without it everything works on NumPy alone,
# with the same numbers.

WORTH_LOADING = 10_000_000
"""Rows of one call from which on loading the kernels pays; once loaded they are used for fewer too."""
WORTH_ADDING = 1 << 17
"""The same where numba is loaded already: the kernels alone take a hundredth of a second."""


def loaded_kernels() -> ModuleType | None:
    """The kernels if they are there already."""
    return sys.modules.get("unkgcp.conformal.residual_kernels")


def kernels_for(rows: int) -> ModuleType | None:
    """The kernels if they are there, or if so many rows are worth loading them and they can be."""
    if rows < (WORTH_ADDING if "numba" in sys.modules else WORTH_LOADING):
        return loaded_kernels()
    try:
        from unkgcp.conformal import residual_kernels
    except ImportError:  # no numba
        return None
    return residual_kernels


CLIP = 1e-6


@register
@dataclass(frozen=True)
class EntropyResidual(ScaledResidual):
    """s = |M - truth| / H(M), the paper's adaptive measure: H is the entropy of the predicted confidence M, in nats.

    M is mapped to slope M + offset (the reference experiments on CN15k use 0.5 M + 0.5) and clipped to
    [1e-6, 1 - 1e-6] before the entropy; the residual uses M as it is. The clip keeps H above 1.4e-5, so that
    no score is infinite.

    >>> EntropyResidual().prepare(np.array([0.5]))
    array([0.69314718])
    """

    name: ClassVar[str] = "entropy"
    takes_scale: ClassVar[bool] = False

    slope: float = 1.0
    offset: float = 0.0

    def prepare(self, prediction: Floats, scale: Floats | None = None) -> Floats:
        """H(M) = -M log M - (1 - M) log(1 - M): (n,)."""
        plain = (self.slope, self.offset) == (1.0, 0.0)
        kernels: Any = loaded_kernels() if plain and prediction.dtype == np.float64 else None
        if kernels is not None:  # fewer passes around the logarithms, the same floats
            mass, rest = np.empty_like(prediction), np.empty_like(prediction)
            kernels.split_mass(prediction, CLIP, 1 - CLIP, mass, rest)
            kernels.minus_products(mass, np.log(mass), rest, np.log(rest))
            return mass
        if plain:
            mass = np.clip(prediction, CLIP, 1 - CLIP)
        else:
            mass = prediction * prediction.dtype.type(self.slope)
            mass += prediction.dtype.type(self.offset)
            np.clip(mass, CLIP, 1 - CLIP, out=mass)
        rest = 1 - mass
        mass *= np.log(mass)
        rest *= np.log(rest)
        mass += rest
        return np.negative(mass, out=mass)
