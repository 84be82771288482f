"""Rows of parameter tables for several models at once, with gradients added straight into one buffer a table.

The models of a run are a leading dimension of every table: (members, rows, width). Autograd would make a
gradient the size of the table for each look-up; here each look-up adds its rows to the table's buffer
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unkgcp.backbones import Backbone
from unkgcp.backbones.base import Kind


class _Gather(torch.autograd.Function):
    """Rows `ids` of a table (rows, width); the backward pass adds into `buffer` of the same shape.

    `anchor` is any tensor that requires a gradient: it makes autograd come here, and gets none.
    """

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, table: Tensor, buffer: Tensor, ids: Tensor) -> Tensor:
        ctx.buffer = buffer
        ctx.save_for_backward(ids)
        return table.index_select(0, ids.reshape(-1)).view(*ids.shape, table.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        (ids,) = ctx.saved_tensors
        buffer: Tensor = ctx.buffer
        rows = gradients[0].reshape(-1, buffer.shape[1])
        if buffer.is_cuda:
            buffer.index_add_(0, ids.reshape(-1), rows)
        else:
            # on the CPU index_add walks the rows one by one; this backward runs in parallel
            buffer.add_(
                torch.ops.aten.embedding_dense_backward(rows, ids.reshape(-1), len(buffer), -1, False)
            )
        return None, None, None, None


_gather: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = _Gather.apply


class Lookup:
    """Looks rows up by ids that are local to a member: ids have shape (members, ...)."""

    def __init__(self, backbone: Backbone, tables: dict[str, Tensor], buffers: dict[str, Tensor]) -> None:
        self.kinds, self.tables, self.buffers = backbone.kinds(), tables, buffers
        some = next(iter(tables.values()))
        self.members = torch.arange(some.shape[0], device=some.device)
        self.anchor = torch.zeros((), requires_grad=True)

    def rows(self, kind: Kind, ids: Tensor) -> dict[str, Tensor]:
        """Rows of all tables of one kind: (*ids.shape, width) each."""
        shape = (-1,) + (1,) * (ids.dim() - 1)
        found = {}
        for name, of in self.kinds.items():
            if of == kind:
                table, buffer = self.tables[name], self.buffers[name]
                flat = ids + self.members.view(shape) * table.shape[1]
                found[name] = _gather(self.anchor, table.flatten(0, 1), buffer.flatten(0, 1), flat)
        return found

    def model(self, dimensions: int) -> dict[str, Tensor]:
        """The tables of the model as a whole, shaped to broadcast against ids of `dimensions` dimensions."""
        return self.rows("model", torch.zeros_like(self.members).view(-1, *(1,) * (dimensions - 1)))
