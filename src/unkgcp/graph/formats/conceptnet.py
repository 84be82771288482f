"""ConceptNet 5 assertions: assertion, relation, start, end and a JSON object, separated by tabs, no header.

The confidence is the object's `weight`, brought into [0.1, 1] the way the paper's CN15k was: cut to [0.1, 3],
logarithm, linear. Labels are ConceptNet's own, `/c/en/dog` and `/r/IsA`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as json

from unkgcp.graph.formats.batch import Batch
from unkgcp.graph.formats.layout import Filter, TextFormat
from unkgcp.graph.scaling import Scale

_WEIGHT = json.ParseOptions(
    explicit_schema=pa.schema([("weight", pa.float64())]), unexpected_field_behavior="ignore"
)


def weights(fields: pa.StringArray) -> pa.DoubleArray:
    """The weight of each object, null where it has none.

    >>> weights(pa.array(['{"weight": 2.0}', '{"dataset": "/d/x"}'])).to_pylist()
    [2.0, None]
    """
    if not len(fields):
        return pa.array([], pa.float64())
    lines = pc.binary_join_element_wise(fields, "\n", "")
    data = lines.buffers()[2]
    options = json.ReadOptions(use_threads=False, block_size=len(data))
    table = json.read_json(pa.BufferReader(data), read_options=options, parse_options=_WEIGHT)
    if len(table) != len(fields):
        raise pa.ArrowInvalid("a field holds no object, or more than one")
    return pa.concat_arrays(table.column("weight").chunks)


def in_language(language: str) -> Filter:
    """Keep the assertions between two concepts of one language, `en` for instance."""
    prefix = f"/c/{language}/"

    def keep(batch: Batch) -> pa.BooleanArray:
        return pc.and_(pc.starts_with(batch.head, prefix), pc.starts_with(batch.tail, prefix))

    return keep


CONCEPTNET = TextFormat(
    "conceptnet",
    "\t",
    "ConceptNet assertions file",
    header=False,
    columns=(2, 1, 3, 4),
    scale=Scale("log", cap=3.0, floor=0.1, low=0.1),
    numbers=weights,
    signature=lambda fields: (
        len(fields) == 5 and fields[0].startswith("/a/[") and fields[1].startswith("/r/")
    ),
    by_language=in_language,
)
