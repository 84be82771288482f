"""Uncertain knowledge graphs with statistical guarantees.

A fact (head, relation, tail) carries a confidence in [0, 1]. This package predicts the confidence of unseen
facts as an interval that contains the true value with a probability chosen by the caller.

>>> import unkgcp
>>> graph = unkgcp.read("demo")
>>> predictor = unkgcp.fit(graph)                                                      # doctest: +SKIP
>>> predictor.interval([("Mara Cole", "works_with", "Yuki Diaz")], confidence=0.9)     # doctest: +SKIP

Names are imported on first use: `import unkgcp` alone loads neither NumPy nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp._version import __version__
from unkgcp.lazy import lazy

if TYPE_CHECKING:
    from unkgcp.backbones import register_backbone
    from unkgcp.conformal import register_score
    from unkgcp.errors import InputError
    from unkgcp.evaluation import evaluate
    from unkgcp.graph import Dataset, Graph, Splits, read, write
    from unkgcp.run import Predictor, calibrate, fit
    from unkgcp.run.updates import update
    from unkgcp.service.client import Client
    from unkgcp.training import train
    from unkgcp.training.pykeen_models import from_pykeen

__getattr__, __dir__ = lazy(
    __name__,
    {
        "backbones": ("register_backbone",),
        "conformal": ("register_score",),
        "errors": ("InputError",),
        "evaluation": ("evaluate",),
        "run.updates": ("update",),
        "graph": ("Dataset", "Graph", "Splits", "read", "write"),
        "run": ("Predictor", "calibrate", "fit"),
        "service.client": ("Client",),
        "training": ("train",),
        "training.pykeen_models": ("from_pykeen",),
    },
)

__all__ = [
    "Client",
    "Dataset",
    "Graph",
    "InputError",
    "Predictor",
    "Splits",
    "__version__",
    "calibrate",
    "evaluate",
    "fit",
    "from_pykeen",
    "read",
    "register_backbone",
    "register_score",
    "train",
    "update",
    "write",
]
