"""The compiled loop behind `distmult.scores`. Importing it imports numba.

Most of the time goes into waiting for rows from memory, so those of some triples ahead are asked for early.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# the order of a sum is left to the compiler, so that it can add several numbers at once; nothing else is
quick: Any = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "nsz"}}

AHEAD = 32  # triples: as far as the second cache reaches
LINE = 16  # floats in a line of the processor's cache


@intrinsic
def fetch(typing: Any, table: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line of table[row, column] without waiting for it."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, array, list(arguments[1:]), wraparound=False)
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        shape = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, shape, "llvm.prefetch.p0")
        # to be read, to be kept in the second cache, data
        builder.call(call, [builder.bitcast(place, byte), number(0), number(1), number(1)])
        return context.get_dummy_value()

    return types.void(table, types.int64, types.int64), code


@njit(**quick)
def products(entity: Any, relation: Any, head: Any, middle: Any, tail: Any, out: Any) -> None:
    """Fill `out` (n,) with the sum over the dimensions of h r t; ids must be within the tables."""
    n, width = len(out), entity.shape[1]
    for i in range(n):
        later = min(i + AHEAD, n - 1)
        for k in range(0, width, LINE):
            fetch(entity, np.int64(head[later]), np.int64(k))
            fetch(entity, np.int64(tail[later]), np.int64(k))
        h, r, t = head[i], middle[i], tail[i]
        total = np.float32(0)
        for k in range(width):
            total += entity[h, k] * relation[r, k] * entity[t, k]
        out[i] = total
