"""The paper's four interval methods on arrays of scores, and the figures by which they are judged.

A score is NaN where the model knows nothing of an entity or of the relation: such a row calibrates nothing, and its
interval is the whole range.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from unkgcp.conformal import SplitConformal

Floats = NDArray[np.float64]
FIGURES = ("coverage", "sharpness", "interval_score", "worst_tenth")


def entropy(score: Floats, mapped: bool = False) -> Floats:
    """H(M) in nats, the scale of UnKGCP: (n,). `mapped` takes it at 0.5 M + 0.5, as the paper did on CN15k."""
    mass = np.clip(0.5 * score + 0.5 if mapped else score, 1e-6, 1 - 1e-6)
    return np.asarray(-mass * np.log(mass) - (1 - mass) * np.log(1 - mass))


@dataclass(frozen=True)
class Method:
    """How one method answers. `quantiles`: scores of the quantile models by quantile, of the rows that are asked."""

    name: str
    mapped: bool = False

    def scale(self, score: Floats) -> Floats | None:
        return entropy(score, self.mapped) if self.name == "unkgcp" else None

    def doubt(self, score: Floats, quantiles: Mapping[float, Floats]) -> Floats:
        """How unsure the method is of each known row, without any label: (n,)."""
        if self.name == "qr":
            outermost = _quantile_hulls(quantiles)[:, :, -1]
            return np.asarray(outermost[:, 1] - outermost[:, 0])
        return entropy(score, self.mapped)

    def ends(
        self,
        calibration: tuple[Floats, Floats],
        score: Floats,
        quantiles: Mapping[float, Floats],
        levels: Sequence[float],
    ) -> Floats:
        """Lower and upper end of known rows at every level: (n, 2, levels). `calibration`: (scores, labels)."""
        if self.name == "fpi":
            return _fisher(calibration[0], len(score), levels)
        if self.name == "qr":
            return _quantile_hulls(quantiles)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # calibration sets that are too small for a level give the whole range
            fitted = SplitConformal(bounds=(0, 1)).calibrate(*calibration, scale=self.scale(calibration[0]))
            return np.asarray(fitted.interval(score, scale=self.scale(score), confidence=list(levels)))


def _fisher(score: Floats, n: int, levels: Sequence[float]) -> Floats:
    """Fisher intervals: mean -+ t s sqrt(l / (l - 1)) of the *scores* of the calibration facts, one for every query."""
    size = len(score)
    spread = score.std(ddof=1) * np.sqrt(size / (size - 1)) if size > 1 else np.inf
    half = stats.t.ppf((1 + np.array(levels)) / 2, max(size - 1, 1)) * spread
    ends = np.clip([score.mean() - half, score.mean() + half], 0, 1)
    return np.broadcast_to(ends, (n, 2, len(levels)))


def _quantile_hulls(quantiles: Mapping[float, Floats]) -> Floats:
    """Quantile regression: a level's two quantiles, in order; its interval contains those of smaller levels."""
    taus, hulls = sorted(quantiles), []
    for lower, upper in zip(taus[: len(taus) // 2][::-1], taus[len(taus) // 2 :], strict=True):
        hulls.append(np.sort([quantiles[lower], quantiles[upper]], axis=0))
        if len(hulls) > 1:
            hulls[-1][0] = np.minimum(hulls[-1][0], hulls[-2][0])
            hulls[-1][1] = np.maximum(hulls[-1][1], hulls[-2][1])
    return np.stack(hulls, axis=-1).swapaxes(0, 1)


def answer(
    method: Method,
    calibration: tuple[Floats, Floats],
    score: Floats,
    quantiles: Mapping[float, Floats],
    levels: Sequence[float],
) -> tuple[Floats, Floats]:
    """Ends (n, 2, levels) and doubt (n,), NaN where the score is unknown, of all rows."""
    known, usable = ~np.isnan(score), ~np.isnan(calibration[0])
    ends, doubt = np.empty((len(score), 2, len(levels))), np.full(len(score), np.nan)
    ends[:, 0], ends[:, 1] = 0, 1
    if known.any():
        of_known = {tau: column[known] for tau, column in quantiles.items()}
        columns = calibration[0][usable], calibration[1][usable]
        ends[known] = method.ends(columns, score[known], of_known, levels)
        doubt[known] = method.doubt(score[known], of_known)
    return ends, doubt


def figures(ends: Floats, truth: Floats, doubt: Floats, levels: Sequence[float]) -> dict[str, list[Any]]:
    """Each of FIGURES at each level; None where there are no rows.

    Interval score: width plus 2 / (1 - level) times the distance by which a label is missed. Worst tenth: the lowest
    coverage among tenths of the known rows by doubt.
    """
    found: dict[str, list[Any]] = {name: [] for name in FIGURES}
    for place, level in enumerate(levels):
        lower, upper = ends[:, 0, place], ends[:, 1, place]
        inside, missed = covered(truth, lower, upper), np.maximum(np.maximum(lower - truth, truth - upper), 0)
        width = upper - lower
        figure = inside.mean(), width.mean(), (width + 2 / (1 - level) * missed).mean()
        for name, value in zip(FIGURES, (*figure, worst_tenth(doubt, inside)), strict=True):
            found[name].append(None if np.isnan(value) else float(value))
    return found


def covered(truth: Floats, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
    return (lower <= truth) & (truth <= upper)


def worst_tenth(doubt: Floats, inside: NDArray[np.bool_]) -> float:
    """The lowest coverage among tenths by doubt, in which equal values stay together; NaN rows are left out."""
    known = ~np.isnan(doubt)
    doubt, inside = doubt[known], inside[known]
    starts = np.arange(10) * len(doubt) // 10
    member = np.searchsorted(starts, np.searchsorted(np.sort(doubt), doubt), side="right") - 1
    _, member = np.unique(member, return_inverse=True)
    return (
        float(np.min(np.bincount(member, inside) / np.bincount(member), initial=np.inf))
        if len(doubt)
        else np.nan
    )


def width_by_error(error: Floats, width: Floats, inside: NDArray[np.bool_], edges: Floats) -> dict[str, Any]:
    """Do wide intervals mark hard queries? Mean width of covering intervals by error, and their rank correlation."""
    bins = len(edges) - 1
    member = np.clip(np.searchsorted(edges, error, side="right") - 1, 0, bins - 1)[inside]
    count, total = np.bincount(member, minlength=bins), np.bincount(member, width[inside], bins)
    varies = inside.sum() > 1 and np.ptp(width[inside]) > 0 and np.ptp(error[inside]) > 0
    rho = float(stats.spearmanr(error[inside], width[inside]).statistic) if varies else None
    return {
        "width": [float(t / n) if n else None for n, t in zip(count, total, strict=True)],
        "covered": count.tolist(),
        "spearman": rho,
        **dict(
            zip(
                ("spearman_low", "spearman_high"),
                rank_correlation_interval(rho, int(inside.sum())),
                strict=True,
            )
        ),
    }


def rank_correlation_interval(rho: float | None, n: int) -> tuple[float | None, float | None]:
    """95 % interval of a rank correlation: Fisher's z with Bonett and Wright's standard error."""
    if rho is None or n < 4 or abs(rho) >= 1:
        return rho, rho
    half = 1.959964 * np.sqrt((1 + rho**2 / 2) / (n - 3))
    return float(np.tanh(np.arctanh(rho) - half)), float(np.tanh(np.arctanh(rho) + half))


def size_curve(
    method: Method,
    calibration: tuple[Floats, Floats],
    asked: tuple[Floats, Floats],
    seed: int,
    level: float,
    draws: int,
) -> dict[str, Any]:
    """How many calibration facts are enough? Coverage and width at 10, 20, 40, ... of them, over random draws."""
    usable = ~np.isnan(calibration[0])
    score, label = calibration[0][usable], calibration[1][usable]
    sizes = [*(10 * 2 ** np.arange(40)[10 * 2 ** np.arange(40) < len(score)]).tolist(), len(score)]
    rows = []
    for place, size in enumerate(sizes):
        rng, found = np.random.default_rng([seed, place]), []
        for _ in range(draws if size < len(score) else 1):
            chosen = rng.choice(len(score), size, replace=False)
            ends, _ = answer(method, (score[chosen], label[chosen]), asked[0], {}, [level])
            lower, upper = ends[:, 0, 0], ends[:, 1, 0]
            found.append((covered(asked[1], lower, upper).mean(), (upper - lower).mean()))
        spread = np.std(found, axis=0, ddof=min(1, len(found) - 1))
        rows.append([*np.mean(found, axis=0), *spread])
    names = ("coverage", "sharpness", "coverage_sd", "sharpness_sd")
    return {
        "sizes": sizes,
        **{name: column.tolist() for name, column in zip(names, np.array(rows).T, strict=True)},
    }
