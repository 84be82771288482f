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
@given(labels=LABELS, text=st.text(alphabet="aAbé e\u0301ß日🙂", max_size=3), limit=st.integers(1, 25))
@example(labels=["b", "B", "ba", "a"], text="B", limit=2)
def test_finds_what_begins_with_the_text_in_order(labels, text, limit):
    found = LabelSearch(pa.array(labels, pa.string())).find(text, limit)
    right = sorted(
        (plain(label).encode(), i) for i, label in enumerate(labels) if plain(label).startswith(plain(text))
    )
    assert [plain(labels[i]).encode() for i in found.ids] == [key for key, _ in right[:limit]]
    assert len(set(found.ids.tolist())) == len(found.ids)
    assert found.more == (len(right) > limit)


@settings(deadline=None)
@given(labels=LABELS, text=st.text(alphabet="aAbé", max_size=3), limit=st.integers(1, 25))
def test_anywhere_adds_what_holds_the_text_later_on(labels, text, limit):
    found = LabelSearch(pa.array(labels, pa.string())).find(text, limit, anywhere=True)
    keys = [plain(label) for label in labels]
    wanted = plain(text)
    first = sorted(key for key in keys if key.startswith(wanted))
    then = [key for key in keys if wanted in key and not key.startswith(wanted)]
    shown = [keys[i] for i in found.ids]
    assert shown[: len(first)] == first[:limit]
    assert all(key in then for key in shown[len(first) :])
    assert len(shown) == min(limit, len(first) + len(then))
    assert found.more == (len(first) + len(then) > limit)


def test_many_labels_are_searched_by_halving():
    labels = pa.array([f"Thing {i:06d}" for i in range(200_000)])
    search = LabelSearch(labels)
    looked = 0
    real = search._lower

    class Counting:
        def __len__(self):
            return len(real)

        def __getitem__(self, place):
            nonlocal looked
            looked += 1
            return real[place]

    search._lower = Counting()
    assert search.find("tHING 1234", 5).ids.tolist() == [123_400, 123_401, 123_402, 123_403, 123_404]
    assert looked <= 2 * 18
