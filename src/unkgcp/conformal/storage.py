"""The result of a calibration, in memory and on disk: one .npz of plain arrays and a line of JSON, never pickle.

Loaded arrays are checked as if a stranger had written them, because scores in a wrong order, or a missing score, would
silently break the guarantee.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.ranking import GroupRankings, Partition, Ranking
from unkgcp.conformal.ranks import Order
from unkgcp.conformal.scores import LearnedScore, Limits, Recipe, Score, make_score, score_parameters
from unkgcp.errors import InputError

FORMAT = "unkgcp split conformal 2"
BEFORE = "unkgcp split conformal 1"
"""The earlier format; it differs for calibrations with groups only, where small groups had no scores of their own."""
_LEARNED = "learned/"


@dataclass(frozen=True)
class Calibration:
    """The result of a calibration: the scores in order, how they were computed, and their groups."""

    given: Score | Recipe | None
    """The score that the user asked for; None if calibration chose one."""
    bounds: Limits
    training_conditional: float | None
    score: Score
    rankings: GroupRankings
    heaviest: float | None = None
    """The largest weight of a calibration point; None without weights."""

    @property
    def ranking(self) -> Ranking:
        """The scores in the groups of the first partition."""
        return self.rankings.first.ranking

    @property
    def grouped(self) -> bool:
        return self.rankings.grouped

    @property
    def weighted(self) -> bool:
        return self.heaviest is not None

    @property
    def learned(self) -> bool:
        """Whether the score was learned from a part of the calibration points; it was not if they were too few."""
        return isinstance(self.score, LearnedScore)


def check_settings(bounds: Limits | None, training_conditional: float | None) -> Limits:
    """The range of labels as two floats, infinite ones for None; a ValueError names a setting that is impossible."""
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    if not low < high:
        raise ValueError(f"bounds must be a smaller and a larger number, not {bounds}")
    if training_conditional is not None and not 0 < training_conditional < 1:
        raise ValueError(f"training_conditional must be above 0 and below 1, not {training_conditional}")
    return float(low), float(high)


def to_arrays(calibration: Calibration) -> dict[str, NDArray[Any]]:
    """A calibration as plain arrays by name, for a file of its own or for a part of a larger file."""
    given, partitions = calibration.given, calibration.rankings.partitions
    score = given if isinstance(given, Recipe) else calibration.score
    about = {
        "format": FORMAT,
        "score": score.name,
        "parameters": score_parameters(score),
        "given_score": given is not None,
        "learned": calibration.learned,
        "bounds": calibration.bounds,
        "training_conditional": calibration.training_conditional,
        "heaviest": calibration.heaviest,
    }
    if "" not in partitions:
        about["partitions"] = list(partitions)
    columns: dict[str, NDArray[Any]] = {"about": np.array(json.dumps(about))}
    for place, (name, part) in enumerate(partitions.items()):
        own = {"scores": part.ranking.scores, "offsets": part.ranking.offsets}
        if part.ranking.tails is not None:
            own["tails"] = part.ranking.tails
        if part.groups is not None:
            own["groups"] = part.groups
        columns |= {(f"{place}/" if name else "") + column: array for column, array in own.items()}
    learned = calibration.score.arrays() if isinstance(calibration.score, LearnedScore) else {}
    return {**columns, **{_LEARNED + name: array for name, array in learned.items()}}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Calibration:
    """The calibration that `to_arrays` stored; ValueError if the arrays are no calibration."""
    columns = dict(arrays)
    try:
        return _restore(json.loads(str(columns.pop("about"))), columns)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"{error} is missing or out of place") from error


def save(calibration: Calibration, path: str | os.PathLike[str]) -> None:
    """Write a calibration whole, or not at all."""
    from unkgcp.files import atomic_path, write_npz  # not at import: start-up time

    with atomic_path(path) as temporary:
        write_npz(temporary, to_arrays(calibration))


def load(path: str | os.PathLike[str]) -> Calibration:
    """Read a file that `save` wrote; anything else is an `InputError` that says what is wrong with it."""
    from unkgcp.files import read_npz

    try:
        columns = read_npz(path)
    except FileNotFoundError:
        raise InputError(f"there is no calibration file {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is damaged or not a saved calibration; calibrate again") from error
    try:
        return from_arrays(columns)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}; calibrate again") from error


def _restore(about: dict[str, Any], columns: dict[str, NDArray[Any]]) -> Calibration:
    if about["format"] == BEFORE and "groups" in columns:
        raise InputError(
            "this calibration with groups is one of version 0.1, which kept no promise for small groups; "
            "calibrate or fit again"
        )
    if about["format"] not in (FORMAT, BEFORE):
        raise ValueError(f"its format is {about['format']!r}, expected {FORMAT!r}")
    given = make_score(about["score"], **about["parameters"])
    if isinstance(given, Recipe):
        learned = {
            name.removeprefix(_LEARNED): columns[name] for name in columns if name.startswith(_LEARNED)
        }
        score: Score = given.restore(learned) if about["learned"] else given.fallback()
    else:
        score = given
    low, high = about["bounds"]
    bounds = check_settings((low, high), about["training_conditional"])
    rankings = _rankings(about.get("partitions"), columns)
    # residuals and masses are never negative; a score that a user registered may be
    if (score.centred or isinstance(score, LearnedScore)) and (rankings.first.ranking.scores < 0).any():
        raise ValueError(f"the {score.name} score is never negative, but one of these is")
    heaviest = None if about["heaviest"] is None else float(about["heaviest"])
    if any((heaviest is None) != (part.ranking.tails is None) for part in rankings.partitions.values()):
        raise ValueError("weights are missing")
    asked = given if about["given_score"] else None
    return Calibration(asked, bounds, about["training_conditional"], score, rankings, heaviest)


def _rankings(names: Any, columns: dict[str, NDArray[Any]]) -> GroupRankings:
    """The rankings of one partition without a name, or of several partitions with these names."""
    if names is None:
        return GroupRankings({"": _partition("", columns)})
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("the columns of groups have no names")
    parts = {name: _partition(f"{place}/", columns) for place, name in enumerate(names)}
    scores = [np.sort(part.ranking.scores) for part in parts.values()]
    if (
        len(parts) < len(names)
        or any(part.groups is None for part in parts.values())
        or not all(np.array_equal(scores[0], each) for each in scores)
    ):
        raise ValueError("the columns of groups do not match each other")
    return GroupRankings(parts)


def _partition(prefix: str, columns: dict[str, NDArray[Any]]) -> Partition:
    """The partition whose arrays have names with this prefix."""
    groups = columns.get(prefix + "groups")
    ranking = _checked(columns[prefix + "scores"], columns[prefix + "offsets"], columns.get(prefix + "tails"))
    if (0 if groups is None else len(groups)) != len(ranking.sizes) - 1:
        raise ValueError("groups and thresholds do not match")
    if groups is not None and (
        groups.ndim != 1 or groups.dtype.kind not in "iuU" or (groups[1:] <= groups[:-1]).any()
    ):
        raise ValueError("the group labels are not sorted")
    return Partition(groups, ranking)


def _checked(scores: NDArray[Any], offsets: NDArray[Any], tails: NDArray[Any] | None) -> Ranking:
    """A ranking of these arrays; ValueError unless the scores of each segment are numbers in ascending order."""
    if scores.ndim != 1 or scores.dtype not in (np.float32, np.float64):
        raise ValueError(f"scores are {scores.dtype} of shape {scores.shape}")
    if offsets.ndim != 1 or offsets.dtype != np.int64 or len(offsets) < 2 or offsets[0] != 0:
        raise ValueError("the segments of the scores are broken")
    sizes = np.diff(offsets)
    empty = sizes[-1:] if len(sizes) > 1 else sizes[:0]  # with groups the last segment is empty
    if offsets[-1] != len(scores) or (sizes[: len(sizes) - len(empty)] < 1).any() or empty.any():
        raise ValueError("the segments do not add up to the scores")
    falls = ~(scores[1:] >= scores[:-1])
    falls[offsets[1:-2] - 1] = False
    if falls.any() or np.isnan(scores).any():
        raise ValueError("the scores are not sorted")
    if tails is not None:
        if (
            tails.dtype != np.float64
            or tails.shape != (len(scores) + len(offsets) - 1,)
            or not np.isfinite(tails).all()
            or (tails < 0).any()
        ):
            raise ValueError("the weights do not match the scores")
        rises = tails[1:] > tails[:-1]
        rises[offsets[1:-1] + np.arange(len(offsets) - 2)] = False
        if rises.any() or tails[offsets[1:] + np.arange(len(offsets) - 1)].any():
            raise ValueError("the weights are not sums of weights")
    return Ranking(Order(scores, True), offsets, tails)
