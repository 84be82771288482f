"""Labels found in an index, compiled: where they stand in a text, without a copy of them.

The words of a label (see `words`) are taken from the text eight bytes at a time. Some labels are looked at together,
so that their waits for memory overlap: first those for their slots, then those for the words there. Importing this
module imports numba and makes `find` ready.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

compiled: Any = {"cache": True, "nogil": True, "error_model": "numpy"}

# Bytes that may be read, not used, before the first byte of a label.
MARGIN = 64
# Labels of so many bytes and more are left to others.
LONGEST = 64
# Labels looked for at a time: enough that their waits for memory overlap, few enough to stay in the nearest cache.
TOGETHER = 64

# what Arrow holds may not be written to
TEXT, PLACES = (
    types.Array(kind, 1, layout, readonly=True) for kind, layout in ((types.uint8, "C"), (types.int32, "A"))
)
IDS, WORDS = types.int32[::1], types.uint64[:, ::1]

# masks that keep the last 0, 1, ..., 8 bytes of a word
KEPT = np.array([(1 << 64) - (1 << 8 * (8 - count)) for count in range(9)], np.uint64)


@intrinsic
def word_at(typing: Any, data: Any, position: Any) -> Any:
    """Eight bytes from a position on as one number, the first byte the lowest."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        pointer = builder.gep(array.data, [arguments[1]])
        return builder.load(builder.bitcast(pointer, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), code


@intrinsic
def fetch(typing: Any, data: Any, position: Any, offset: Any) -> Any:
    """Ask for what stands in an array, or for some bytes after the start of its row, so that it is near when needed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        stride = builder.extract_value(array.strides, 0)
        start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
        place = builder.gep(start, [builder.add(builder.mul(arguments[1], stride), arguments[2])])
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, memory = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))
        builder.call(function, [place, read, keep, memory])
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), code


@njit(**compiled)
def word_before(data: Any, begin: Any, end: Any) -> Any:
    """The last eight bytes of what lies between two positions, zeros where there are fewer. Without branches."""
    return word_at(data, end - 8) & KEPT[min(max(end - begin, 0), 8)]


@njit(**compiled)
def slot_of(mixed: Any, odd: Any, shift: Any) -> Any:
    mixed ^= mixed >> np.uint64(32)
    return np.int64((mixed * odd[0]) >> shift)


# Loops are written out: handing arrays on to helpers in between takes five times as long.
@njit(types.void(TEXT, PLACES, PLACES, IDS, types.int64, WORDS, WORDS, types.uint64[::1], IDS), **compiled)
def find(
    data: Any, begins: Any, ends: Any, table: Any, bits: Any, last: Any, before: Any, odd: Any, ids: Any
) -> None:
    """Ids of labels of less than 64 bytes in a `LabelIndex`, -1 for unknown ones: fills ids (n,)."""
    mask, shift = np.int64((1 << bits) - 1), np.uint64(64 - bits)
    slots, words = np.empty(TOGETHER, np.int64), np.empty((TOGETHER, 4), np.uint64)
    for first in range(0, len(ids), TOGETHER):
        rows = min(TOGETHER, len(ids) - first)
        for r in range(rows):
            begin, end = np.int64(begins[first + r]), np.int64(ends[first + r])
            mixed = np.uint64(0)
            for k in range(4):
                word = word_before(data, begin, end - 8 * (3 - k))
                words[r, k] = word
                mixed += word * odd[4 + k]
            if end - begin > 32:
                for k in range(4):
                    mixed += word_before(data, begin, end - 8 * (7 - k)) * odd[k]
            slots[r] = slot_of(mixed, odd, shift)
            fetch(table, slots[r], 0)
        for r in range(rows):
            held = max(np.int64(table[slots[r]]), 0)
            fetch(last, held, 0)
            fetch(last, held, 24)  # a row may lie across two lines of the cache
        for r in range(rows):
            begin, end, slot = np.int64(begins[first + r]), np.int64(ends[first + r]), slots[r]
            held = np.int64(table[slot])
            while held >= 0:
                other = np.uint64(0)
                for k in range(4):
                    other |= last[held, k] ^ words[r, k]
                if other == 0 and end - begin >= 32:
                    for k in range(4):
                        other |= before[held, k] ^ word_before(data, begin, end - 8 * (7 - k))
                if other == 0:
                    break
                slot = (slot + 1) & mask
                held = np.int64(table[slot])
            ids[first + r] = held
