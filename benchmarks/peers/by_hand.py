"""What a good engineer makes in an afternoon on any graph: LightGBM's quantiles of group statistics, conformalised.

    python benchmarks/peers/by_hand.py FOLDER OUT.npz [--by rows|pairs] [--method cqr|mapie] [--level 0.9]

FOLDER holds train.tsv, val.tsv and test.tsv (head, relation, tail, confidence; no header). Every fact is described by
the confidences of the other facts in nine groups: those with the same head, relation, tail, two of the three, the pair
turned round, and all facts of either entity. A training fact is asked of the nine of ten folds that it is not in;
`--by pairs` keeps the facts of a pair of entities in one fold. `cqr` widens two quantiles by rank (Romano, Patterson
and Candes 2019); `mapie` leaves that to MAPIE. OUT.npz gets lower, upper and score of the test facts.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

FOLDS, ROUNDS, SHRINK = 10, 250, 3.0
BOOSTING = {
    "num_leaves": 63,
    "learning_rate": 0.06,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "verbose": -1,
    "num_threads": 2,
    "seed": 0,
}
Array = np.ndarray[Any, Any]


def numbered(*columns: Array) -> Array:
    """A number for every different row of these columns: (n,)."""
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()


class Facts:
    """The facts of all three files in one numbering; `parts` are the rows of train, val and test."""

    def __init__(self, folder: Path) -> None:
        rows, sizes = [], []
        for part in ("train", "val", "test"):
            lines = (folder / f"{part}.tsv").read_text(encoding="utf-8").splitlines()
            rows += [line.split("\t") for line in lines]
            sizes.append(len(lines))
        self.truth = np.array([row[3] for row in rows], float)
        entities: dict[str, int] = {}
        ids = [entities.setdefault(label, len(entities)) for row in rows for label in (row[0], row[2])]
        self.head, self.tail = np.array(ids).reshape(-1, 2).T
        self.relation = np.unique([row[1] for row in rows], return_inverse=True)[1]
        self.pair = numbered(np.minimum(self.head, self.tail), np.maximum(self.head, self.tail))
        self.parts = np.split(np.arange(len(rows)), np.cumsum(sizes)[:-1])
        h, r, t = self.head, self.relation, self.tail
        both = numbered(np.concatenate([h, t]), np.concatenate([t, h]))
        self.views = [(key, key) for key in (h, r, t, numbered(h, r), numbered(r, t), numbered(h, t))]
        self.views.append((both[: len(h)], both[len(h) :]))

    def statistics(self, asked: Array, known: Array) -> Array:
        """Mean, spread, count and shrunken mean of the facts `known` in the groups of the facts `asked`."""
        value, middle = self.truth[known], self.truth[known].mean()
        groups = [(given[known], value, wanted[asked]) for given, wanted in self.views]
        entities, twice = np.concatenate([self.head[known], self.tail[known]]), np.tile(value, 2)
        groups += [(entities, twice, side[asked]) for side in (self.head, self.tail)]
        columns = []
        for group, weight, wanted in groups:
            size = 1 + max(group.max(initial=0), wanted.max(initial=0))
            count, total, square = (np.bincount(group, weight**power, size)[wanted] for power in (0, 1, 2))
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = total / count
                spread = np.sqrt(np.maximum(square / count - mean**2, 0))
            spread[count < 2] = np.nan
            columns += [mean, spread, np.log1p(count), (total + SHRINK * middle) / (count + SHRINK)]
        return np.column_stack(columns)

    def tables(self, by_pairs: bool) -> list[Array]:
        """Statistics of train (from folds), val and test facts."""
        train, *others = self.parts
        unit = self.pair[train] if by_pairs else train
        fold = np.random.default_rng(0).integers(0, FOLDS, unit.max() + 1)[unit]
        asked = [self.statistics(train[fold == each], train[fold != each]) for each in range(FOLDS)]
        learning = np.empty((len(train), asked[0].shape[1]))
        for each, rows in enumerate(asked):
            learning[fold == each] = rows
        return [learning, *(self.statistics(part, train) for part in others)]


def learned(table: Array, truth: Array, **objective: Any) -> lightgbm.LGBMRegressor:
    model = lightgbm.LGBMRegressor(
        n_estimators=ROUNDS, subsample_for_bin=200_000, **{**BOOSTING, **objective}
    )
    return model.fit(table, truth)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--by", choices=("rows", "pairs"), default="rows")
    parser.add_argument("--method", choices=("cqr", "mapie"), default="cqr")
    parser.add_argument("--level", type=float, default=0.9)
    options = parser.parse_args()
    facts, level = Facts(options.folder), options.level
    learning, calibration, asked = facts.tables(options.by == "pairs")
    truth, known, _ = (facts.truth[part] for part in facts.parts)
    models = [
        learned(learning, truth, objective="quantile", alpha=q) for q in ((1 - level) / 2, (1 + level) / 2)
    ]
    if options.method == "cqr":
        low, high = np.sort([model.predict(calibration) for model in models], axis=0)
        scores = np.sort(np.maximum(low - known, known - high))
        rank = math.ceil(level * (len(scores) + 1))
        more = scores[rank - 1] if rank <= len(scores) else 1.0
        low, high = np.sort([model.predict(asked) for model in models], axis=0)
        lower, upper = low - more, high + more
        score = learned(learning, truth, objective="regression").predict(asked)
    else:
        from mapie.regression import ConformalizedQuantileRegressor

        middle = learned(learning, truth, objective="quantile", alpha=0.5)
        fitted = ConformalizedQuantileRegressor([*models, middle], confidence_level=level, prefit=True)
        score, ends = fitted.conformalize(calibration, known).predict_interval(asked)
        lower, upper = ends[:, 0, 0], ends[:, 1, 0]
    lower = np.clip(lower, 0, 1)
    np.savez(
        options.output, lower=lower, upper=np.maximum(lower, np.clip(upper, 0, 1)), score=np.clip(score, 0, 1)
    )


if __name__ == "__main__":
    main()
