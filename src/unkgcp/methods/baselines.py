"""The paper's two baselines, which guarantee nothing: Fisher intervals and quantile regression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranks import Confidence, exact
from unkgcp.files import Field, check_fields
from unkgcp.graph.facts import Graph, HasTriples, Triples
from unkgcp.methods import register
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import IntervalPredictor, Scorer, numbered


@register
class FisherIntervals(IntervalPredictor):
    """mean +- t s sqrt(l / (l - 1)), cut to [0, 1]; t is Student's quantile with l - 1 degrees of freedom.

    As in the paper's appendix, mean and s are those of the model's *predictions* on the l calibration facts,
    not of their labels, and the interval is the same for every query. One calibration fact has no spread: the
    interval is then the whole range.

    Guarantee: none for the labels. Assumption: labels are distributed like the predictions, normally and with
    one variance; real confidences are not, and coverage then lies anywhere.
    """

    name: str = "fpi"
    guarantee: str = "none: it presumes normal confidences distributed like the predictions"

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        self.mean = float(score.mean())
        self.spread = float(score.std(ddof=1)) if len(score) > 1 else math.inf

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        ends = np.empty((len(score), 2, len(levels)))
        for column, level in enumerate(levels):
            half = self._half_width(float(level))
            ends[:, 0, column] = min(max(self.mean - half, 0.0), 1.0)
            ends[:, 1, column] = max(min(self.mean + half, 1.0), 0.0)
        return ends

    def _half_width(self, level: float) -> float:
        if level >= 1 or not math.isfinite(self.spread):
            return math.inf
        from scipy.special import stdtrit

        degrees = self.size - 1
        return float(stdtrit(degrees, (1 + level) / 2)) * self.spread * math.sqrt(self.size / degrees)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"mean": np.array(self.mean), "spread": np.array(self.spread)}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        check_fields(arrays, [Field(name, np.floating, finite=False) for name in ("mean", "spread")])
        self.mean, self.spread = float(arrays["mean"]), float(arrays["spread"])


@register
class QuantileRegression(IntervalPredictor):
    """[q_lower(x), q_upper(x)] from models of the quantiles (1 - level) / 2 and (1 + level) / 2.

    `quantiles` maps each trained quantile to its model. What the paper leaves open is settled so:

    - where the two quantiles cross, they change places;
    - an untrained level uses the next larger trained one, above the largest the answer is the whole range;
    - the interval at a level contains those of all smaller trained levels (their hull), so that intervals are
      nested although the models were trained apart.

    Calibration facts are not used. Guarantee: none; coverage depends on how well the quantiles were learned,
    and an embedding model learns them far better on training facts than beyond. Assumption: the quantile
    models are right.
    """

    name: str = "qr"
    guarantee: str = "none: it presumes that the learned quantiles are right"
    needs: tuple[str, ...] = ("quantiles",)

    def __init__(self, quantiles: Mapping[float, Scorer]) -> None:
        self.quantiles = {float(tau): model for tau, model in sorted(quantiles.items())}
        self.pairs = _pairs(list(self.quantiles))

    def models(self) -> dict[str, Scorer]:
        return {**super().models(), **{f"quantile/{tau!r}": model for tau, model in self.quantiles.items()}}

    @classmethod
    def made_of(cls, models: Mapping[str, Scorer]) -> dict[str, Any]:
        return {"quantiles": numbered(models, "quantile", float)}

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        return

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        trained = sorted(self.pairs)
        chosen = [next((i for i, wide in enumerate(trained) if wide >= level), None) for level in levels]
        wanted = trained[: 1 + max((i for i in chosen if i is not None), default=-1)]
        taus = [tau for level in wanted for tau in self.pairs[level]]
        quantiles = np.array([self.quantiles[tau].score(*triples) for tau in taus], np.float64)
        pairs = quantiles.reshape(len(wanted), 2, len(score))
        # an interval holds those of lower levels
        lower, upper = np.minimum.accumulate(pairs.min(axis=1)), np.maximum.accumulate(pairs.max(axis=1))
        ends = np.empty((len(score), 2, len(levels)))
        ends[:, 0], ends[:, 1] = 0.0, 1.0
        for column, place in enumerate(chosen):
            if place is not None:
                ends[:, 0, column], ends[:, 1, column] = lower[place], upper[place]
        return ends

    def doubt(self, triples: HasTriples, score: Floats | None = None) -> Floats:
        """The width between the two outermost quantiles: (n,)."""
        queries = Triples(triples.head, triples.relation, triples.tail)
        ends = self._ends(np.empty(len(triples.head)), queries, [max(self.pairs)])
        return np.asarray(ends[:, 1, 0] - ends[:, 0, 0])

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level in self.pairs:
            return None
        larger = min((trained for trained in self.pairs if trained > level), default=None)
        used = "the whole range answers" if larger is None else f"the models of {float(larger):g} answer"
        return f"no quantile models were trained for confidence {float(level)}: {used}"

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"quantiles": np.array(list(self.quantiles))}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if set(arrays) != {"quantiles"} or arrays["quantiles"].tolist() != list(self.quantiles):
            raise ValueError("the quantile models are not those that were calibrated")


def _pairs(taus: list[float]) -> dict[Fraction, tuple[float, float]]:
    """level -> (lower quantile, upper quantile), from the trained quantiles, which must come in pairs."""
    pairs = {}
    for lower, upper in zip(taus, reversed(taus), strict=True):
        if lower > upper:
            break
        if abs(lower + upper - 1) > 1e-9 or lower == upper:
            raise ValueError(f"quantile {lower} has no partner {1 - lower}; train both for each level")
        # (1 - 0.9) / 2 is not exactly 0.05: rounding gives the level back as the user wrote it
        pairs[exact(round(upper - lower, 9))] = (lower, upper)
    if not pairs:
        raise ValueError("quantile regression needs at least one pair of quantile models")
    return pairs
