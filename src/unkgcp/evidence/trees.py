"""Boosted trees that give each class a probability, or one number: learned by LightGBM, evaluated without it.

The nodes of all trees are stored one after the other in plain arrays. A node does not name its children, but the leaves
that remain possible on either side of it: then all nodes of a tree can be tried at once, and trees from a stranger
cannot loop for ever. Arrays from a file are checked, so that such trees cannot read beyond the arrays either.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError, remedy
from unkgcp.loops import cores, in_threads
from unkgcp.progress import Progress

LEAVES = 32  # the most leaves of a tree: bits of a number
NAN_MISSING, DEFAULT_LEFT, CATEGORICAL = 8, 2, 1  # bits of LightGBM's decision_type
LEAST_IN_LEAF = 20  # facts in a leaf of a regression
SAMPLED, DENSE = 1000, 0.15  # rows looked at, and the share of missing values below which a table is dense
FEW_ROWS = 5000  # up to so many rows are learned from faster by one thread than by several
WALKS = 1 << 18  # walks from root to leaf that are worth a thread; they take some ten milliseconds
COLUMNS: dict[str, Any] = {
    "classes": np.int64,
    "prior": np.float64,
    "first_node": np.int64,
    "tree_class": np.int64,
    "feature": np.int32,
    "threshold": np.float32,
    "missing_left": np.bool_,
    "if_left": np.uint32,
    "if_right": np.uint32,
    "leaf": np.float64,
}
"""The arrays that trees are stored as, with their types; each has one dimension. Compiled loops take them in order."""
PER_NODE = ("feature", "threshold", "missing_left", "if_left", "if_right")


@dataclass(frozen=True, eq=False)
class Trees:
    """T trees for K classes, with M nodes."""

    features: int
    classes: NDArray[np.int64]
    """(K,) the classes that occur among the facts, ascending; all others have probability 0."""
    total: int
    """The number of classes, including those that do not occur."""
    prior: NDArray[np.float64]
    """(K,) logarithm of the share of each class, to which the trees add."""
    first_node: NDArray[np.int64]
    """(T + 1,) where the nodes of each tree begin."""
    tree_class: NDArray[np.int64]
    """(T,) position in `classes` of the class that a tree adds to."""
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    """(M,) each node sends rows whose feature is at most this to its left side."""
    missing_left: NDArray[np.bool_]
    if_left: NDArray[np.uint32]
    """(M,) bits of the leaves that a row can reach if this node sends it left, see `remaining`."""
    if_right: NDArray[np.uint32]
    leaf: NDArray[np.float64]
    """(T * LEAVES,)"""

    def sums(self, table: NDArray[np.float32]) -> NDArray[np.float64]:
        """Prior and leaves of each class, added up for rows of features: (n, K). Of one class it is the prediction."""
        from unkgcp.evidence import tree_kernels as compiled

        table = np.ascontiguousarray(table, np.float32)
        nodes = [getattr(self, name) for name in COLUMNS if name not in ("classes", "prior")]
        out = np.tile(self.prior, (len(table), 1))

        def work(rows: slice) -> None:
            compiled.sum_trees(table[rows], *nodes, out[rows])

        in_threads(len(table), work, 1 + WALKS // (1 + len(self.tree_class)))
        return out

    def probabilities(self, table: NDArray[np.float32]) -> NDArray[np.float64]:
        """The probability of each class for rows of features: (n, total)."""
        raw = self.sums(table)
        weight = np.exp(raw - raw.max(axis=1, keepdims=True))
        out = np.zeros((len(table), self.total))
        out[:, self.classes] = weight / weight.sum(axis=1, keepdims=True)
        return out

    def scaled(self, factor: float, offset: float) -> Trees:
        """Trees whose sums are factor times those of these, plus an offset."""
        return replace(self, prior=self.prior * factor + offset, leaf=self.leaf * factor)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return arrays_of(self)

    @classmethod
    def restore(cls, arrays: Mapping[str, NDArray[Any]]) -> Trees:
        """The trees that `arrays` stored; ValueError if the arrays are no trees."""
        names = {field.name for field in fields(cls)}
        if set(arrays) != names:
            raise ValueError(f"the trees have other columns than they should: {sorted(names ^ set(arrays))}")
        made: dict[str, Any] = {name: np.array(array) for name, array in arrays.items()}
        made["features"], made["total"] = int(made["features"]), int(made["total"])
        trees = cls(**made)
        trees._check()
        return trees

    def _check(self) -> None:
        for name, kind in COLUMNS.items():
            if getattr(self, name).dtype != kind or getattr(self, name).ndim != 1:
                raise ValueError(f"the trees' {name} is not a column of the right type")
        trees, nodes = len(self.tree_class), len(self.feature)
        good = (
            len(self.prior) == len(self.classes) >= 1
            and bool((np.diff(self.classes) > 0).all())
            and self.classes[0] >= 0
            and self.classes[-1] < self.total
            and {len(getattr(self, name)) for name in PER_NODE} == {nodes}
            and len(self.leaf) == LEAVES * trees
            and len(self.first_node) == trees + 1
            and self.first_node[0] == 0
            and self.first_node[-1] == nodes
            and bool((np.diff(self.first_node) >= 0).all())
            and bool(((self.tree_class >= 0) & (self.tree_class < len(self.classes))).all())
            and bool(((self.feature >= 0) & (self.feature < self.features)).all())
            and bool(np.isfinite(self.leaf).all() and np.isfinite(self.prior).all())
        )
        if not good:
            raise ValueError("the trees' columns do not fit together")


def arrays_of(record: Any) -> dict[str, NDArray[Any]]:
    """The fields of a dataclass as arrays, for saving."""
    return {field.name: np.asarray(getattr(record, field.name)) for field in fields(record)}


def remaining(left: Sequence[int], right: Sequence[int]) -> tuple[list[int], list[int]]:
    """The leaves of a tree that a row can still reach if a node sends it left, and right, as bits, for all nodes.

    A child c >= 0 is node c, which comes after its parent; c < 0 is leaf ~c.
    """
    below = [0] * len(left)  # the leaves below each node

    def leaves(child: int) -> int:
        return below[child] if child >= 0 else 1 << ~child

    for node in reversed(range(len(left))):
        below[node] = leaves(left[node]) | leaves(right[node])
    return [below[0] & ~leaves(child) for child in right], [below[0] & ~leaves(child) for child in left]


def from_lightgbm(
    text: str, features: int, classes: NDArray[np.int64], total: int, prior: NDArray[np.float64], rounds: int
) -> Trees:
    """The trees of the first `rounds` rounds of a model in LightGBM's text format."""
    width = len(classes)  # each round has a tree for every class, for two classes as well
    blocks = text.split("\nTree=")[1 : 1 + rounds * width]
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    columns |= {"first_node": [0], "classes": list(classes), "prior": list(prior)}
    for number, block in enumerate(blocks):
        lines = dict(line.split("=", 1) for line in block.splitlines()[1:] if "=" in line)
        columns["tree_class"].append(number % width)
        leaves = [float(value) for value in lines["leaf_value"].split()]
        columns["leaf"] += leaves + [0.0] * (LEAVES - len(leaves))
        if len(leaves) > 1:  # a tree of one leaf has no nodes
            decision = np.array(lines["decision_type"].split(), np.int64)
            if (decision & CATEGORICAL).any():
                raise ValueError("categorical splits are not supported")
            threshold = np.array(lines["threshold"].split(), np.float64)
            # where LightGBM saw no missing value while it learned, it treats one as 0
            missing_left = np.where(decision & NAN_MISSING, (decision & DEFAULT_LEFT) > 0, threshold >= 0)
            columns["feature"] += map(int, lines["split_feature"].split())
            columns["threshold"] += list(threshold)
            columns["missing_left"] += list(missing_left)
            left, right = (list(map(int, lines[f"{side}_child"].split())) for side in ("left", "right"))
            for name, bits in zip(("if_left", "if_right"), remaining(left, right), strict=True):
                columns[name] += bits
        columns["first_node"].append(len(columns["feature"]))
    exact = np.array(columns["threshold"], np.float64)
    # the largest float32 that is not above: it divides features, which are float32, as the exact one does
    with np.errstate(
        over="ignore"
    ):  # LightGBM's largest threshold, which all features are below, becomes infinity
        rounded = exact.astype(np.float32)
    lower = np.nextafter(rounded, np.float32(-np.inf))
    columns["threshold"] = np.where(rounded > exact, lower, rounded).tolist()
    arrays = {name: np.array(column, COLUMNS[name]) for name, column in columns.items()}
    return Trees(features=features, total=total, **arrays)


Table = NDArray[np.float32]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Boosting:
    """Settings for learning trees with LightGBM."""

    rounds: int
    leaves: int = 31
    learning_rate: float = 0.15
    feature_fraction: float = 0.3
    bins: int = 127
    patience: int = 10
    seed: int = 0
    threads: int = 0
    """As many as the rows are worth by default; the same for all that are learned at once, as LightGBM requires."""

    def learn(
        self,
        table: Table,
        label: Classes,
        held_table: Table,
        held_label: Classes,
        total: int,
        weights: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
        progress: Progress | None = None,
    ) -> Trees:
        """Trees for labels below `total`; learning stops when the likelihood of the held-out rows no longer grows.

        weights: those of the rows and of the held-out rows; all are 1 by default. `progress` counts rounds.
        """
        classes, compact = np.unique(label, return_inverse=True)
        known = np.isin(held_label, classes)
        held_table, held_label = held_table[known], held_label[known]
        row_weight, held_weight = (None, None) if weights is None else (weights[0], weights[1][known])
        total_weight = len(label) if row_weight is None else row_weight.sum()
        prior = np.log(np.bincount(compact, row_weight) / total_weight)
        if len(classes) < 2 or not len(held_label):
            return from_lightgbm("", table.shape[1], classes, total, prior, 0)  # no tree: always the prior
        lightgbm, settings = _lightgbm(), self._settings(len(classes), table)
        # boosting starts from the prior; LightGBM wants it for all rows of one class after the other
        data = lightgbm.Dataset(
            table,
            compact,
            weight=row_weight,
            init_score=np.repeat(prior, len(label)),
            params=settings,
        )
        held = lightgbm.Dataset(
            held_table,
            np.searchsorted(classes, held_label),
            weight=held_weight,
            init_score=np.repeat(prior, len(held_label)),
            reference=data,
        )
        text, best = self._boosted(settings, data, held, progress)
        return from_lightgbm(text, table.shape[1], classes, total, prior, best)

    def regress(
        self,
        table: Table,
        target: NDArray[np.float64],
        held_table: Table,
        held_target: NDArray[np.float64],
        objective: str = "regression",
    ) -> Trees:
        """Trees whose sums predict a number, or with the objective `gamma` the logarithm of a positive one."""
        lightgbm = _lightgbm()
        base = float(target.mean())
        prior = np.array([np.log(base) if objective == "gamma" else base])
        one = np.zeros(1, np.int64)
        if len(target) < 2 * LEAST_IN_LEAF or not len(held_target):
            return from_lightgbm("", table.shape[1], one, 1, prior, 0)
        settings = self._settings(1, table) | {
            "objective": objective,
            "metric": objective if objective == "gamma" else "l2",
            "boost_from_average": False,
            "lambda_l2": 2.0,
            "min_data_in_leaf": LEAST_IN_LEAF,
            "min_sum_hessian_in_leaf": 1e-3,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "max_delta_step": 0.0,
        }
        begin = np.full(len(target), prior[0]), np.full(len(held_target), prior[0])
        data = lightgbm.Dataset(table, target, init_score=begin[0], params=settings)
        held = lightgbm.Dataset(held_table, held_target, init_score=begin[1], reference=data)
        text, best = self._boosted(settings, data, held)
        return from_lightgbm(text, table.shape[1], one, 1, prior, best)

    def _boosted(
        self, settings: dict[str, Any], data: Any, held: Any, progress: Progress | None = None
    ) -> tuple[str, int]:
        """What LightGBM learned, as text, and after how many rounds the held-out rows were predicted best."""
        lightgbm, stopped = _lightgbm(), getattr(_here, "stopped", None)

        def watch(state: Any) -> None:
            if stopped is not None and stopped.is_set():
                raise CancelledError
            if progress is not None:
                progress.update(state.iteration + 1)

        booster = lightgbm.train(
            settings,
            data,
            self.rounds,
            valid_sets=[held],
            callbacks=[lightgbm.early_stopping(self.patience, verbose=False), watch],
        )
        best = booster.best_iteration or booster.current_iteration()
        return booster.model_to_string(num_iteration=best), best

    def _settings(self, classes: int, table: Table) -> dict[str, Any]:
        missing = np.isnan(table[:: 1 + len(table) // SAMPLED]).mean(axis=0)
        # LightGBM leaves out columns without a value
        dense = missing[missing < 1].sum() < DENSE * (missing < 1).sum()
        return {
            **({"objective": "multiclass", "num_class": classes} if classes > 1 else {}),
            "metric": "multi_logloss",
            "boost_from_average": False,
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "feature_fraction": self.feature_fraction,
            "max_bin": self.bins,
            "lambda_l2": 5.0,
            "min_sum_hessian_in_leaf": 5.0,
            "max_delta_step": 1.0,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise" if dense else "force_col_wise": True,  # the same trees, in different time
            "num_threads": self.threads or threads_for(len(table)),
            "verbosity": -1,
        }


def threads_for(rows: int) -> int:
    """Threads to learn from so many rows: half of the cores, for threads of LightGBM wait for each other a lot."""
    return 1 if rows <= FEW_ROWS else max(1, cores() // 2)


_here = threading.local()
"""`stopped`: an event after which trees that are being learned in this thread are no longer wanted."""


@contextmanager
def two_at_once() -> Iterator[Callable[..., Future[Any]]]:
    """`submit(function, *arguments)` runs two calls at once. Where the block ends in an error, they are stopped."""
    stopped = threading.Event()
    with ThreadPoolExecutor(2, initializer=lambda: setattr(_here, "stopped", stopped)) as pool:
        try:
            yield pool.submit
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise InputError(f"--method evidence needs lightgbm: {remedy('lightgbm')}") from None
    return lightgbm
