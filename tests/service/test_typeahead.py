"""Type-ahead finds what a search through all labels would find."""

from __future__ import annotations

import unicodedata

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unkgcp.service.lookups import LabelSearch

LABELS = st.lists(st.text(alphabet="aAbBéÉ e\u0301ß日🙂\x00ÿ", max_size=5), max_size=20)


def plain(text: str) -> str:
    return pa.compute.utf8_lower(pa.array([unicodedata.normalize("NFKC", text)]))[0].as_py()


@settings(deadline=None)
@given(
    labels=LABELS,
    text=st.text(alphabet="aAbé e\u0301ß日🙂", max_size=3),
    limit=st.integers(1, 25),
    anywhere=st.booleans(),
)
@example(labels=["b", "B", "ba", "a"], text="B", limit=2, anywhere=False)
def test_finds_first_what_begins_with_the_text_then_what_holds_it(labels, text, limit, anywhere):
    ids, more = LabelSearch(pa.array(labels, pa.string())).find(text, limit, anywhere)
    keys, wanted = [plain(label) for label in labels], plain(text)
    first = sorted((key for key in keys if key.startswith(wanted)), key=str.encode)
    then = [key for key in keys if anywhere and wanted in key and not key.startswith(wanted)]
    shown = [keys[i] for i in ids]
    assert shown[: len(first)] == first[:limit]
    assert all(key in then for key in shown[len(first) :])
    assert len(set(ids.tolist())) == len(shown) == min(limit, len(first) + len(then))
    assert more == (len(first) + len(then) > limit)
