"""The two plain layouts: tabs or commas between head, relation, tail and confidence."""

from __future__ import annotations

from unkgcp.graph.formats.layout import TextFormat

# In a TSV file a quotation mark is a character like any other; what a tab or a line end may hide in is CSV.
TSV = TextFormat("tsv", "\t", "tab-separated file")
CSV = TextFormat("csv", ",", "comma-separated file", quoted=True)
