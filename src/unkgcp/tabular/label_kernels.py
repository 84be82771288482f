"""Compiled code for large files: lines cut into fields, and labels found in an index where they stand in the text.

Why by hand: Arrow makes a string of every label before it can be looked up. Without these strings ten million facts
are read in little more than the time that Arrow takes to parse them (`benchmarks/read.py`). Importing this module
imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from unkgcp.loops import njit

compiled: Any = {"nogil": True, "error_model": "numpy"}

# Bytes before a label that are read, but not used.
MARGIN = 64
# Labels of this many bytes and more are not looked up here.
LONGEST = 64
# Labels looked for at a time: enough that their waits for memory overlap, few enough to stay in the nearest cache.
TOGETHER = 64

# the memory of Arrow is read-only
TEXT = types.Array(types.uint8, 1, "C", readonly=True)
SPANS = types.Array(types.int32, 2, "A", readonly=True)
IDS, WORDS = types.int32[::1], types.uint64[:, ::1]
INDEX = (IDS, types.int64, WORDS, WORDS, types.uint64[::1], types.int64[::1], types.uint8[::1], types.int64)

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
    """Have the processor fetch a row of an array, from `offset` bytes on, so that it is in the cache when needed."""

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


# Slots of a table for each label it may hold.
SPARSE = 4
# Fields a line may have.
WIDEST = 64

ONES, HIGH = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
NEWLINE, RETURN, POINT, ZERO = 10, 13, 46, 48
# a whole number below 2^53 divided by one of these is rounded once, to the float nearest to the decimal
POWERS = 10.0 ** np.arange(16)
DIGITS = 15


@intrinsic
def trailing_zeros(typing: Any, value: Any) -> Any:
    """How many of the lowest bits of a number that is not zero are zero."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), code


@njit(**compiled)
def zeros(word: Any) -> Any:
    """The high bit of every byte that is zero; above the first of them also of bytes that are one."""
    return (word - ONES) & ~word & HIGH


@njit(
    "Tuple((i8, i8))(u1[::1], i8, i8, i8, i8, i8[::1], i4[:, ::1], i4[:, ::1], f8[::1], i4[:, ::1])",
    **compiled,
)
def cut(
    data: Any,
    begin: Any,
    end: Any,
    delimiter: Any,
    width: Any,
    places: Any,
    entities: Any,
    relations: Any,
    confidence: Any,
    unread: Any,
) -> Any:
    """Fields of the lines between `begin` and `end`.

    Fills `entities` (2 rows, 2) with begin and end of the fields at places[0] and places[1], head and tail in turns,
    `relations` (rows, 2) with those at places[2], `confidence` with the numbers at places[3], and `unread` (rows, 3)
    with the rows whose number is left to others, and its begin and end. Returns how many rows there are, -1 if a line
    is not plain or a label long, and how many numbers were not read.
    """
    fields = np.empty(WIDEST + 1, np.int64)
    stop, newline = np.uint64(delimiter) * ONES, np.uint64(NEWLINE) * ONES
    carriage = np.uint64(RETURN) * ONES
    row, left, i = 0, 0, begin
    while i < end:
        field = 0
        fields[0] = i
        while True:
            word = word_at(data, i)
            found = zeros(word) | zeros(word ^ stop) | zeros(word ^ newline) | zeros(word ^ carriage)
            if found == 0:
                i += 8
                if i >= end:
                    return -1, 0
                continue
            i += np.int64(trailing_zeros(found) >> np.uint64(3))
            byte = data[i]
            i += 1
            field += 1
            if i > end or field > width or byte == 0 or byte == RETURN:
                return -1, 0
            fields[field] = i
            if byte == NEWLINE and byte != delimiter:
                break
        if field != width:
            return -1, 0
        for k in range(3):
            if fields[places[k] + 1] - fields[places[k]] > LONGEST:
                return -1, 0
        for k in range(2):
            entities[2 * row + k, 0] = fields[places[k]]
            entities[2 * row + k, 1] = fields[places[k] + 1] - 1
        relations[row, 0], relations[row, 1] = fields[places[2]], fields[places[2] + 1] - 1
        first, last = fields[places[3]], fields[places[3] + 1] - 1
        number, point = np.int64(0), np.int64(-1)
        plain = (last > first) & (last - first <= DIGITS + 1)
        if plain:
            for j in range(first, last):
                digit = np.int64(data[j]) - ZERO
                if 0 <= digit <= 9:
                    number = number * 10 + digit
                elif digit == POINT - ZERO and point < 0:
                    point = j
                else:
                    plain = False
            plain &= (point != first) & (point != last - 1) & (last - first - (point >= 0) <= DIGITS)
        if plain:
            confidence[row] = number / POWERS[last - point - 1] if point >= 0 else np.float64(number)
        else:
            unread[left, 0], unread[left, 1], unread[left, 2] = row, first, last
            left += 1
        row += 1
    return row, left


# Loops are written out: handing arrays on to helpers in between takes five times as long.
@njit(types.UniTuple(types.int64, 2)(TEXT, SPANS, IDS, types.int64, *INDEX, types.boolean), **compiled)
def look_up(
    data: Any,
    spans: Any,
    ids: Any,
    first: Any,
    table: Any,
    bits: Any,
    last: Any,
    before: Any,
    odd: Any,
    offsets: Any,
    text: Any,
    size: Any,
    add: Any,
) -> Any:
    """Ids of labels of less than 64 bytes in a `LabelIndex`: fills ids (n,) from `first` on.

    An unknown label gets -1; with `add` it is entered, in the order of the labels, as far as there is room. Some labels
    are looked at together, so that the waits for their slots overlap, and those for the words there. Returns how many
    labels are done and how many the index has.
    """
    mask, shift = np.int64((1 << bits) - 1), np.uint64(64 - bits)
    slots, words = np.empty(TOGETHER, np.int64), np.empty((TOGETHER, 4), np.uint64)
    while first < len(ids):
        if add and min(len(last), len(table) // SPARSE) - size < TOGETHER:
            break
        if add and len(text) - offsets[size] < TOGETHER * LONGEST:
            break
        rows = min(TOGETHER, len(ids) - first)
        for r in range(rows):
            begin, end = np.int64(spans[first + r, 0]), np.int64(spans[first + r, 1])
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
            begin, end = np.int64(spans[first + r, 0]), np.int64(spans[first + r, 1])
            slot = slots[r]
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
            if add and held < 0:
                held = np.int64(size)
                table[slot] = held
                for k in range(4):
                    last[held, k] = words[r, k]
                    before[held, k] = word_before(data, begin, end - 8 * (7 - k))
                start = offsets[size]
                for j in range(end - begin):
                    text[start + j] = data[begin + j]
                size += 1
                offsets[size] = start + end - begin
            ids[first + r] = held
        first += rows
    return first, size


@njit("void(u1[::1], i4[:, ::1], i4[::1], u1[::1])", **compiled)
def gather(data: Any, spans: Any, offsets: Any, out: Any) -> None:
    """Copy what lies in the spans to `out`, one after the other, as `offsets` says."""
    for k in range(len(spans)):
        for j in range(spans[k, 1] - spans[k, 0]):
            out[offsets[k] + j] = data[spans[k, 0] + j]
