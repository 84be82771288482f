"""Uncertain knowledge graphs with statistical guarantees.

A fact (head, relation, tail) carries a confidence in [0, 1]. This package predicts the confidence of unseen
facts as an interval that contains the true value with a probability chosen by the caller.

>>> import unkgcp
>>> graph = unkgcp.load("demo")
>>> splits = graph.split(calibration=0.07, test=0.08, seed=0)

Names are imported on first use: `import unkgcp` alone loads neither NumPy nor torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from unkgcp._version import __version__

if TYPE_CHECKING:
    from unkgcp.errors import InputError
    from unkgcp.evaluation.update_decision import update
    from unkgcp.graph import Dataset, Graph, Splits, graph_from, load, load_dataset, read, write
    from unkgcp.run import Predictor, calibrate
    from unkgcp.training import train
    from unkgcp.training.pykeen_models import from_pykeen

# Threads that wait for each other at the end of a parallel region sleep instead of spinning: on a machine that does
# anything else besides, training and learning trees are many times faster so. OpenMP reads this when torch, numba or
# LightGBM first load it, which is after this package, whichever of its rooms is asked for first.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_WHERE = {
    "Dataset": "unkgcp.graph",
    "Graph": "unkgcp.graph",
    "InputError": "unkgcp.errors",
    "Predictor": "unkgcp.run",
    "Splits": "unkgcp.graph",
    "calibrate": "unkgcp.run",
    "from_pykeen": "unkgcp.training.pykeen_models",
    "graph_from": "unkgcp.graph",
    "load": "unkgcp.graph",
    "load_dataset": "unkgcp.graph",
    "read": "unkgcp.graph",
    "train": "unkgcp.training",
    "update": "unkgcp.evaluation.update_decision",
    "write": "unkgcp.graph",
}

__all__ = [
    "Dataset",
    "Graph",
    "InputError",
    "Predictor",
    "Splits",
    "__version__",
    "calibrate",
    "from_pykeen",
    "graph_from",
    "load",
    "load_dataset",
    "read",
    "train",
    "update",
    "write",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'unkgcp' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
