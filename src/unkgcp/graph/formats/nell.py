"""NELL's beliefs, "ESV CSV": tab-separated in spite of the name, thirteen columns, one belief a line.

The confidence is the column Probability. A belief promoted more than once has a list there, `[0.9, 0.95]`: the
largest counts. NaN means that NELL gave none; such rows are an error unless missing confidences are skipped.
Category memberships (relation `generalizations`) are facts like all others.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.graph.formats.layout import TextFormat


def probabilities(fields: pa.StringArray) -> pa.DoubleArray:
    """The number in each field, the largest of a list, null where there is none.

    >>> probabilities(pa.array(["0.5", "[0.25, 0.75]", "", "NaN"])).to_pylist()
    [0.5, 0.75, None, None]
    """
    if not len(fields):
        return pa.array([], pa.float64())
    lists = pc.split_pattern_regex(pc.utf8_trim(fields, characters="[] "), pattern=r"[,\s]+")
    texts = lists.flatten()
    texts = pc.if_else(pc.equal(texts, ""), "NaN", texts)
    values = np.asarray(texts.cast(pa.float64()))
    largest = np.fmax.reduceat(values, np.asarray(lists.offsets)[:-1] - lists.offsets[0].as_py())
    return pa.array(largest, pa.float64(), mask=np.isnan(largest))


NELL = TextFormat(
    "nell",
    "\t",
    "NELL ESV file",
    header=True,
    columns=("Entity", "Relation", "Value", "Probability"),
    numbers=probabilities,
    signature=lambda fields: tuple(fields[:3]) == ("Entity", "Relation", "Value"),
)
