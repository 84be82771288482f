"""Lines cut into fields and labels entered in an index, compiled: what a large file of plain lines needs, in one pass.

The bytes of a block are looked at eight at a time and never copied: a field is where it begins and where it ends.
Whatever is not plain (a line with other than the expected number of fields, a carriage return, a NUL byte) is not
judged here: the block goes back to the reader that can say what is wrong. So does a number that is not a plain
decimal of up to fifteen digits, one by one. Importing this module imports numba; `formats.plain` decides when that
pays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from unkgcp.graph.finding import LONGEST, TOGETHER, compiled, fetch, find, slot_of, word_at, word_before

__all__ = ["LONGEST", "TOGETHER", "WIDEST", "cut", "enter", "find", "gathered"]

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


@njit("Tuple((i8, i8))(u1[::1], i8, i8, i8, i8, i8[::1], i4[:, ::1], f8[::1], i4[:, ::1])", **compiled)
def cut(
    data: Any,
    begin: Any,
    end: Any,
    delimiter: Any,
    width: Any,
    places: Any,
    spans: Any,
    confidence: Any,
    unread: Any,
) -> Any:
    """Fields of the lines between `begin` and `end`.

    Fills `spans` (rows, 6) with begin and end of the fields at places[:3], `confidence` with the numbers at
    places[3], and `unread` with the rows whose number is left to others; with them goes where it stands, (rows, 3).
    Returns how many rows there are, -1 if a line is not plain or a label long, and how many numbers were not read.
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
            spans[row, 2 * k] = fields[places[k]]
            spans[row, 2 * k + 1] = fields[places[k] + 1] - 1
            if fields[places[k] + 1] - fields[places[k]] > LONGEST:
                return -1, 0
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


# As in `finding.find` the loops are written out: handing arrays on to a helper for both takes five times as long.
@njit(
    "Tuple((i8, i8))(u1[::1], i4[:, ::1], i8, i4[::1], i4[::1],"
    " i4[::1], i8, u8[:, ::1], u8[:, ::1], u8[::1], i8[::1], u1[::1], i8)",
    **compiled,
)
def enter(
    data: Any,
    spans: Any,
    row: Any,
    head: Any,
    tail: Any,
    table: Any,
    bits: Any,
    last: Any,
    before: Any,
    odd: Any,
    offsets: Any,
    text: Any,
    size: Any,
) -> Any:
    """Ids of heads and tails from `row` on, new labels entered as they come, row by row, head before tail.

    Some rows are looked at together, so that the waits for their slots overlap, and those for the words there.
    Stops where the index might become too full. Returns the next row and the number of labels.
    """
    mask, shift = np.int64((1 << bits) - 1), np.uint64(64 - bits)
    slots, words = np.empty(TOGETHER, np.int64), np.empty((TOGETHER, 4), np.uint64)
    begins, ends = np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    while row < len(spans):
        room = min(len(last), len(table) // SPARSE) - size
        if room < TOGETHER or len(text) - offsets[size] < TOGETHER * LONGEST:
            break
        rows = min(TOGETHER // 2, len(spans) - row)
        for r in range(rows):
            begins[2 * r], ends[2 * r] = spans[row + r, 0], spans[row + r, 1]
            begins[2 * r + 1], ends[2 * r + 1] = spans[row + r, 4], spans[row + r, 5]
        for r in range(2 * rows):
            begin, end = begins[r], ends[r]
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
        for r in range(2 * rows):
            held = max(np.int64(table[slots[r]]), 0)
            fetch(last, held, 0)
            fetch(last, held, 24)  # a row may lie across two lines of the cache
        for r in range(2 * rows):
            begin, end, slot = begins[r], ends[r], slots[r]
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
            if held < 0:
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
            if r & 1:
                tail[row + r // 2] = held
            else:
                head[row + r // 2] = held
        row += rows
    return row, size


@njit("void(u1[::1], i4[:], i4[:], i8[::1], i4[::1], u1[::1])", **compiled)
def gathered(data: Any, begins: Any, ends: Any, rows: Any, offsets: Any, out: Any) -> None:
    """Copy what lies in the spans of some rows to `out`, one after the other, as `offsets` says."""
    for k in range(len(rows)):
        begin = begins[rows[k]]
        for j in range(ends[rows[k]] - begin):
            out[offsets[k] + j] = data[begin + j]
