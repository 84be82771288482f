"""Boosted trees for a class, learned with LightGBM and stopped on held-out facts.

The regularisation is not a matter of taste: without it a booster of many classes, some of them rare, diverges
silently, and no mass threshold covers what it should.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.evidence.trees import Trees, from_lightgbm

Table = NDArray[np.float32]
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Boosting:
    """How the trees are grown."""

    rounds: int
    leaves: int = 31
    learning_rate: float = 0.15
    feature_fraction: float = 0.3
    bins: int = 127
    patience: int = 10
    seed: int = 0

    def learn(
        self, table: Table, label: Classes, held_table: Table, held_label: Classes, total: int
    ) -> Trees:
        """Trees for labels below `total`; training stops when the held-out facts get no likelier."""
        classes, compact = np.unique(label, return_inverse=True)
        known = np.isin(held_label, classes)
        held_table, held_label = held_table[known], held_label[known]
        prior = np.log(np.bincount(compact) / len(label))
        features = table.shape[1]
        if len(classes) < 2 or not len(held_label):
            return _constant(features, classes, total, prior)
        lightgbm = _lightgbm()
        data = lightgbm.Dataset(
            table, compact, init_score=_start(prior, len(label)), params=self._settings(2)
        )
        held = lightgbm.Dataset(
            held_table,
            np.searchsorted(classes, held_label),
            init_score=_start(prior, len(held_label)),
            reference=data,
        )
        booster = lightgbm.train(
            self._settings(len(classes)),
            data,
            self.rounds,
            valid_sets=[held],
            callbacks=[lightgbm.early_stopping(self.patience, verbose=False)],
        )
        best = booster.best_iteration or booster.current_iteration()
        text = booster.model_to_string(num_iteration=best)
        return from_lightgbm(text, features, classes.astype(np.int64), total, prior, best)

    def _settings(self, classes: int) -> dict[str, Any]:
        return {
            "objective": "multiclass",
            "num_class": classes,
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
            "force_col_wise": True,
            "num_threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0,
            "verbosity": -1,
        }


def _start(prior: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Where boosting starts: every fact at the prior, class after class."""
    return np.repeat(prior, n)


def _constant(features: int, classes: Classes, total: int, prior: NDArray[np.float64]) -> Trees:
    none = np.zeros(0)
    return Trees(
        features,
        classes.astype(np.int64),
        total,
        prior,
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        none.astype(np.int64),
        none.astype(np.int32),
        none,
        none.astype(np.bool_),
        none.astype(np.int32),
        none.astype(np.int32),
        none,
    )


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise InputError("--method evidence needs lightgbm: pip install 'unkgcp[evidence]'") from None
    return lightgbm
