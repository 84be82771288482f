"""STRING, the database of protein interactions: links and actions, scores 0 to 1000.

`protein.links*.txt` is separated by spaces; its facts have one relation, here `LINK`, and the combined score.
`protein.actions*.txt` is separated by tabs; each mode of action (binding, catalysis, ...) is a relation. Both
list a pair in both directions, and actions list some pairs several times: all rows are kept.
"""

from __future__ import annotations

from unkgcp.graph.formats.layout import TextFormat
from unkgcp.graph.scaling import Scale

LINK = "linked"


LINKS = TextFormat(
    "string-links",
    " ",
    "STRING protein.links file",
    header=True,
    columns=("protein1", "protein2", "combined_score"),
    relation=LINK,
    scale=Scale(unit=1000.0),
    signature=lambda fields: tuple(fields[:2]) == ("protein1", "protein2"),
)
ACTIONS = TextFormat(
    "string-actions",
    "\t",
    "STRING protein.actions file",
    header=True,
    columns=("item_id_a", "mode", "item_id_b", "score"),
    scale=Scale(unit=1000.0),
    signature=lambda fields: tuple(fields[:2]) == ("item_id_a", "item_id_b"),
)
