"""Nonconformity scores, each with its exact inverse, found by name: the residual, plain or in units of a scale.

A score says how strange a label is for a prediction; larger is stranger. A score sees no calibration set and knows no
level. To add one, register a class:

    @register
    @dataclass(frozen=True)
    class MyScore:
        name = "mine"
        ...

A conformal set is defined by its scores: it holds the labels y with score(y) <= q. Scores are floats and are rounded at
every step. The textbook ends, prediction - q scale and prediction + q scale, are therefore off by a unit in the last
place for about every second query, and then a label whose score ties with the threshold falls out of its own interval.
`outermost` finds the exact ends instead.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Threshold = Floats | np.floating[Any]
"""One threshold for all queries, or one for each: (n,)."""
Limits = tuple[float, float]
Rows = slice | NDArray[np.intp]
Excess = Callable[[Floats, Rows], Floats]


def loaded_kernels() -> ModuleType | None:
    """The compiled kernels if they are loaded already (`query_chunks.kernels_for` decides about that)."""
    return sys.modules.get("unkgcp.conformal.residual_kernels")


class Score(Protocol):
    """A nonconformity score and its exact inverse, over arrays of one float dtype.

    `bounds` inverts `score` to the last bit: for every float y between the limits, lower <= y <= upper holds exactly
    when score(prediction, y, scale) <= threshold. The labels with score(y) <= threshold must therefore form an interval
    that grows with the threshold. Parameters of a score are dataclass fields (numbers), which a saved calibration
    stores by name.
    """

    name: ClassVar[str]
    takes_scale: ClassVar[bool]
    """Whether the caller has to give a scale for every query."""
    centred: ClassVar[bool]
    """Whether the score is |prediction - truth| divided by what `prepare` returns; compiled code serves such scores."""

    def prepare(self, prediction: Floats, scale: Floats | None) -> Floats | None:
        """What `score` and `bounds` take as `scale`. It is computed once for each query and serves all levels."""
        ...

    def score(self, prediction: Floats, truth: Floats, scale: Floats | None) -> Floats:
        """Nonconformity of each label: (n,), never NaN for finite input."""
        ...

    def bounds(
        self, prediction: Floats, threshold: Threshold, scale: Floats | None, limits: Limits
    ) -> tuple[Floats, Floats]:
        """Smallest and largest label within the limits whose score is at most `threshold`: two new arrays (n,).

        Where no label qualifies, the lower end exceeds the upper one.
        """
        ...


class LearnedScore(Score):
    """A score that a `Recipe` learned."""

    kinds: NDArray[Any] | None
    """Labels of the kinds of predictions that the score tells apart; None if predictions come without a kind."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that was learned, for saving."""

    @abstractmethod
    def places(self, kind: NDArray[Any]) -> NDArray[np.intp]:
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
_MODULES = {"shortest": "unkgcp.conformal.shortest"}  # imported when the score is first asked for
ScoreClass = TypeVar("ScoreClass", bound=type[Any])


def register(score: ScoreClass) -> ScoreClass:
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
    for module in _MODULES.values():
        import_module(module)
    return sorted(name for name, kind in _SCORES.items() if issubclass(kind, Recipe))


def make_score(name: str, **parameters: float) -> Score | Recipe:
    """The registered score, or recipe of a score, with that name."""
    if name in _MODULES:
        import_module(_MODULES[name])
    if name not in _SCORES:
        known = ", ".join(sorted({*_SCORES, *_MODULES}))
        raise ValueError(f"no nonconformity score is named {name!r}; there are {known}")
    score: Score | Recipe = _SCORES[name](**parameters)
    return score


def score_parameters(score: Score | Recipe) -> dict[str, float]:
    """The parameters with which `make_score(score.name, ...)` builds an equal score."""
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


@register
@dataclass(frozen=True)
class ScaledResidual:
    """s = |prediction - truth| / scale; the set at threshold q is [prediction - q scale, prediction + q scale].

    It fits predictions whose errors differ in size. Any positive scale keeps the guarantee, as long as it was chosen
    without the calibration labels.

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


CLIP = 1e-6


@register
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
        plain = (self.slope, self.offset) == (1.0, 0.0)
        kernels: Any = loaded_kernels() if plain and prediction.dtype == np.float64 else None
        if kernels is not None:  # the same floats with fewer passes over the arrays
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


# The exact inverse of a score.


def ends_within(prediction: Floats, radius: Threshold, limits: Limits) -> tuple[Floats, Floats]:
    """Smallest and largest float within the limits whose rounded distance from the prediction is at most `radius`."""
    slack, positive = rounding_slack(radius), limits[0] >= 0
    below = prediction - radius
    below -= slack
    lower = outermost(lambda y, rows: prediction[rows] - y, radius, below, -1, limits[0], positive)
    above = prediction + radius
    above += slack
    upper = outermost(lambda y, rows: y - prediction[rows], radius, above, 1, limits[1], positive)
    return lower, upper


def rounding_slack(values: Any) -> Any:
    """How far beyond each float the real numbers reach that still round to it: half the distance to the next float.

    It is a trifle more for even floats, because the number halfway between two floats rounds to the even one. With this
    slack the guess of an end is the right float or its neighbour, even near zero, where floats are much denser.
    """
    mask, even, half = _SLACK[values.dtype]
    bits = values.view(mask.dtype) & mask
    bits ^= even
    return bits.view(values.dtype) * half


# for each dtype: a mask of the exponent and of the last bit, the last bit, and half the distance of 1 to the next float
_SLACK: dict[np.dtype[Any], tuple[Any, Any, Any]] = {
    np.dtype(np.float32): (np.uint32(0x7F80_0001), np.uint32(1), np.float32(2**-24)),
    np.dtype(np.float64): (np.uint64(0x7FF0_0000_0000_0001), np.uint64(1), np.float64(2**-53)),
}


def outermost(
    excess: Excess, threshold: Threshold, guess: Floats, side: int, limit: float, positive: bool = False
) -> Floats:
    """Outermost floats y with excess(y) <= threshold, cut at `limit`: (n,), in the dtype of `guess`.

    `side` is 1 for the largest such y and -1 for the smallest. `excess(y, rows)` is a rounded function, evaluated for
    the given rows, that does not decrease as y moves outwards. `positive` promises that the answers (for side -1: the
    limit) are not negative, which is faster. `guess` (n,) is overwritten.
    The guess and the float beside it are tried first. Where one of them satisfies the threshold and the other does not,
    the answer is known; only the other rows are searched.
    """
    every, inner = slice(None), np.fmin if side > 0 else np.fmax
    if abs(limit) < np.inf:
        inner(guess, np.full(guess.shape, limit, guess.dtype), out=guess)
    inside = excess(guess, every) <= threshold
    beside = _beside(guess, inside, side, positive)
    settled = (excess(beside, every) <= threshold) != inside
    if not positive:
        settled &= guess != 0
    if abs(limit) < np.inf:
        settled |= inside & (guess == limit)
    elif threshold.ndim > 0 or threshold == np.inf:
        settled &= np.isfinite(guess)  # there is no float beside infinity
    if not settled.all():
        rows = np.flatnonzero(~settled)
        found = _search(excess, np.broadcast_to(threshold, guess.shape), guess, inside, side, rows)
        beside[rows] = guess[rows] = inner(found, guess.dtype.type(limit))
    return inner(guess, beside, out=guess)


def _beside(values: Floats, outwards: NDArray[np.bool_], side: int, positive: bool) -> Floats:
    """The float next to each value that is not zero, on the outer or on the inner side: (n,)."""
    bits = values.view(f"i{values.dtype.itemsize}")
    step: NDArray[Any] = outwards.view(np.int8) * np.int8(2 * side)
    step -= np.int8(side)
    # positive floats are ordered like the integers with the same bits, negative floats in reverse
    if not positive:
        step = step * ((bits >> (8 * bits.itemsize - 1)) | 1)
    # If `positive` is promised but a value is negative, the neighbour on the wrong side is returned. Then value and
    # neighbour mostly agree about the threshold, and `outermost` leaves the row to `_search`.
    beside: Floats = (bits + step).view(values.dtype)
    return beside


def _search(
    excess: Excess,
    threshold: Floats,
    start: Floats,
    inside: NDArray[np.bool_],
    side: int,
    rows: NDArray[np.intp],
) -> Floats:
    """The outermost floats of some rows, by strides from `start` that double, then by bisection: (rows,)."""
    dtype = start.dtype
    first, last = _position(np.array([-side * np.inf, side * np.inf], dtype), side)
    low = _position(start[rows], side)  # becomes a position that satisfies the threshold
    high = low.copy()  # becomes a position that does not
    outwards = inside[rows]
    one, two, four = (low.dtype.type(number) for number in (1, 2, 4))

    def probe(positions: NDArray[Any], which: NDArray[np.intp]) -> NDArray[np.bool_]:
        at = rows[which]
        good = np.asarray(excess(_value(positions, side, dtype), at) <= threshold[at])
        low[which[good]] = positions[good]
        high[which[~good]] = positions[~good]
        return good

    open_, reach = np.arange(len(rows)), one
    while len(open_):
        away = outwards[open_]
        origin = np.where(away, low[open_], high[open_])
        stride = np.minimum(reach, np.where(away, last - origin, origin - first))
        good = probe(np.where(away, origin + stride, origin - stride), open_)
        at_infinity = good & away & (stride == 0)
        high[open_[at_infinity]] = last + one
        open_ = open_[(good == away) & ~at_infinity]
        reach = min(reach * two, last // four)
    while len(open_ := np.flatnonzero(high - low > 1)):
        probe(low[open_] + (high[open_] - low[open_]) // two, open_)
    return _value(low, side, dtype) + dtype.type(0)  # adding 0 turns a negative zero into zero


def _position(values: Floats, side: int) -> NDArray[Any]:
    """Floats as unsigned integers that grow outwards; neighbouring floats differ by one."""
    bits = values.view(f"u{values.dtype.itemsize}")
    sign = bits.dtype.type(1 << (8 * bits.itemsize - 1))
    upwards = np.where(bits & sign, ~bits, bits | sign)
    return upwards if side > 0 else ~upwards


def _value(positions: NDArray[Any], side: int, dtype: np.dtype[Any]) -> Floats:
    """The floats at these positions."""
    upwards = positions if side > 0 else ~positions
    sign = upwards.dtype.type(1 << (8 * upwards.itemsize - 1))
    return np.where(upwards & sign, upwards ^ sign, ~upwards).view(dtype)
