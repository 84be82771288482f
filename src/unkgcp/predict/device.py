"""A predictor whose model scores on a GPU.

What it is: the same formulas on the same tables, moved to a device once. Sums are rounded in another order there, so
scores differ from those of the CPU in the last bits, and intervals with them; nothing else changes. What it is not:
a reason to expect speed: most of the time goes into labels and Parquet, and only costly scores (boxes) gain.

>>> on_device(predictor, "cuda").interval(queries)     # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.training.model import Model

if TYPE_CHECKING:
    from torch import Tensor

    from unkgcp.run.predictor import Predictor

CHUNK = 1 << 17  # triples scored at once


@dataclass(frozen=True, eq=False)
class DeviceModel(Model):
    """A model that scores triples on `device`."""

    device: str = "cuda"

    def score(self, head: ArrayLike, relation: ArrayLike, tail: ArrayLike) -> NDArray[np.float32]:
        """As `Model.score`."""
        import torch

        from unkgcp.backbones import score_triples

        ids = [torch.from_numpy(np.asarray(column).astype(np.int64)) for column in (head, relation, tail)]
        out = np.empty(len(ids[0]), np.float32)
        with torch.no_grad():
            for begin in range(0, len(out), CHUNK):
                part = [column[begin : begin + CHUNK].to(self.device) for column in ids]
                out[begin : begin + CHUNK] = score_triples(self.backbone, self.moved, *part).cpu().numpy()
        return out

    @cached_property
    def moved(self) -> dict[str, Tensor]:
        """The tables on the device; they are moved once."""
        return {name: table.to(self.device) for name, table in self.parameters.items()}


def on_device(predictor: Predictor, device: str) -> Predictor:
    """The predictor with its models on a device (`cuda`, `cuda:1`)."""
    import torch

    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here; choose --device cpu")

    def move(model: Model) -> Model:
        return DeviceModel(**{each.name: getattr(model, each.name) for each in fields(model)}, device=device)

    return predictor.with_models({name: move(model) for name, model in predictor.models().items()})
