"""Labels and RDF terms: each term has one label, and each label is one term, so that what was read is written again.

| term | label |
|---|---|
| an IRI that begins with a named prefix | `wd:Q42`, with `prefixes={"wd": "http://www.wikidata.org/entity/"}` |
| an IRI under the prefix without a name | what follows, percent signs decoded: `TP53`, `lives in` |
| another IRI of the usual schemes | itself: `http://example.org/a` |
| any other IRI | in its brackets: `<concept:athlete>` |
| a blank node | `_:b0` |
| a literal | as N-Triples spells it: `"Rome"@it`, `"1"^^<http://www.w3.org/2001/XMLSchema#integer>` |

The prefix without a name is `urn:unkgcp:label:` unless another is given, so that labels of any file have an IRI. A
label such as `ex:a` whose prefix nobody named is refused, not written as another IRI than it may have come from.

>>> names = Prefixes({"ex": "http://example.org/"})
>>> names.labels(pa.array(["<http://example.org/a>", "<urn:unkgcp:label:lives%20in>"])).to_pylist()
['ex:a', 'lives in']
>>> names.terms(pa.array(["ex:a", "lives in"])).to_pylist()
['<http://example.org/a>', '<urn:unkgcp:label:lives%20in>']
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from unkgcp.errors import InputError

OWN = "urn:unkgcp:label:"
SCHEMES = ("http", "https", "urn", "ftp", "file", "tag", "mailto", "info", "did", "doi")
STRING = "http://www.w3.org/2001/XMLSchema#string"

# The grammar of N-Triples, spelt so that RE2 (Arrow) and Python's re both take it.
_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_FIRST = f"{_BASE}_:0-9"
_NEXT = f"{_FIRST}\u00b7\u0300-\u036f\u203f-\u2040-"
_CODE = r"\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}"
SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"
_IRI_CHARACTER = r'[^\x00-\x20<>"{}|^`\\]'
IRI = rf"<{SCHEME}:(?:{_IRI_CHARACTER}|{_CODE})*>"
BLANK = f"_:[{_FIRST}](?:[{_NEXT}.]*[{_NEXT}])?"
LITERAL = rf'"(?:[^"\\\r\n]|\\[tbnrf"\'\\]|{_CODE})*"(?:\^\^{IRI}|@[A-Za-z]+(?:-[A-Za-z0-9]+)*(?:--[a-z]+)?)?'

# characters that, like letters and digits, are not percent-encoded in an IRI under the prefix without a name
_SAFE = "/!$&'()*+,;=@"
_UNCHANGED = r"^[A-Za-z0-9_.~/!$&'()*+,;=@-]+$"
_PREFIXED = f"[A-Za-z][A-Za-z0-9_.-]*:{_IRI_CHARACTER}+"
_BARE = f"^(?:{'|'.join(SCHEMES)}):{_IRI_CHARACTER}+$"
_NAMED_LABEL = re.compile(_PREFIXED)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_ESCAPE = re.compile(r'\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([tbnrf"\'\\]))')
_SHORT = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_CANONICAL = {"\t": "\\t", "\b": "\\b", "\n": "\\n", "\r": "\\r", "\f": "\\f", '"': '\\"', "\\": "\\\\"}


class Prefixes:
    """The names that are given to beginnings of IRIs, and what follows from them for labels."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        named = dict(given or {})
        self.own = named.pop("", OWN)
        for name, start in [("", self.own), *named.items()]:
            if not re.fullmatch(IRI, f"<{start}>"):
                raise InputError(f"the prefix {name}={start} does not begin an IRI: give NAME=http://...")
            if name and (not _NAME.fullmatch(name) or name in SCHEMES):
                raise InputError(
                    f"the prefix {name!r} is no name for one: use letters and digits, and none of the web's schemes"
                )
        if len({self.own, *named.values()}) < len(named) + 1:
            raise InputError("two prefixes stand for the same beginning of IRIs: leave one of them out")
        # the longest first: of two that fit, the nearer one
        self.named = dict(sorted(named.items(), key=lambda item: -len(item[1])))

    # reading

    def labels(self, terms: pa.Array) -> pa.StringArray:
        """The labels of terms as N-Triples spells them (n,)."""
        terms = terms.cast(pa.string())
        odd = pc.match_substring(terms, "\\")
        if odd.true_count:
            terms = _where(odd, terms, _unescaped)
        string = f"^^<{STRING}>"
        typed = pc.ends_with(terms, string)
        if typed.true_count:
            terms = pc.if_else(typed, pc.utf8_slice_codeunits(terms, 0, -len(string)), terms)
        iris = pc.starts_with(terms, "<")
        if not iris.true_count:
            return terms
        inside = pc.utf8_slice_codeunits(terms, 1, -1)
        bare = pc.match_substring_regex(inside, _BARE)
        found = pc.if_else(pc.and_(iris, bare), inside, terms)
        found = self._under_own(iris, inside, found)
        for name, start in reversed(self.named.items()):  # the longest has the last word
            fits = pc.and_(iris, pc.match_substring_regex(inside, f"^{re.escape(start)}{_IRI_CHARACTER}+$"))
            if fits.true_count:
                short = pc.binary_join_element_wise(name, pc.utf8_slice_codeunits(inside, len(start)), ":")
                found = pc.if_else(fits, short, found)
        return found

    def _under_own(self, iris: pa.Array, inside: pa.Array, found: pa.Array) -> pa.Array:
        """Labels of IRIs under the prefix without a name, where decoding and encoding gives the same again."""
        under = pc.and_(iris, pc.match_substring_regex(inside, f"^{re.escape(self.own)}."))
        if not under.true_count:
            return found
        rest = pc.utf8_slice_codeunits(inside, len(self.own))
        plain = pc.and_(under, pc.match_substring_regex(rest, _UNCHANGED))
        found = pc.if_else(plain, rest, found)
        encoded = pc.and_(under, pc.invert(plain))
        if not encoded.true_count:
            return found
        rows = encoded.to_pylist()
        texts = zip(rows, rest.to_pylist(), found.to_pylist(), strict=True)
        return pa.array(
            [_decoded(text) or label if row else label for row, text, label in texts], pa.string()
        )

    # writing

    def terms(self, labels: pa.Array, tails: bool = True) -> pa.StringArray:
        """The terms of labels as N-Triples spells them (n,); literals may stand in the place of tails only."""
        labels = labels.cast(pa.string())
        plain = pc.match_substring_regex(labels, _UNCHANGED)
        found = pc.if_else(plain, pc.binary_join_element_wise(f"<{self.own}", labels, ">", ""), labels)
        others = pc.invert(plain)
        if not others.true_count:
            return found
        bare = pc.match_substring_regex(labels, _BARE)
        whole = pc.match_substring_regex(labels, f"^(?:{IRI}|{BLANK})$")
        found = pc.if_else(pc.and_(others, bare), pc.binary_join_element_wise("<", labels, ">", ""), found)
        others = pc.and_not(pc.and_not(others, bare), whole)
        for name, start in self.named.items():
            named = pc.match_substring_regex(labels, f"^{re.escape(name)}:{_IRI_CHARACTER}+$")
            if named.true_count:
                rest = pc.utf8_slice_codeunits(labels, len(name) + 1)
                found = pc.if_else(named, pc.binary_join_element_wise(f"<{start}", rest, ">", ""), found)
                others = pc.and_not(others, named)
        return _where(others, found, lambda label: self._term(label, tails)) if others.true_count else found

    def _term(self, label: str, tails: bool) -> str:
        """The term of a label that is no plain one, no IRI and no blank node."""
        if re.fullmatch(LITERAL, label):
            if not tails:
                raise InputError(
                    f"the label {label[:60]!r} is a literal, which RDF allows in the place of a tail only: "
                    "write .tsv, .csv or .parquet"
                )
            return label
        if _NAMED_LABEL.fullmatch(label):
            name = label.partition(":")[0]
            raise InputError(
                f"the label {label[:60]!r} begins with the prefix {name!r}, which has no IRI: "
                f"name it with --prefix {name}=IRI"
            )
        return f"<{self.own}{quote(label, safe=_SAFE)}>"


def _decoded(text: str) -> str | None:
    """The label that is spelt so under the prefix without a name; None if none is."""
    try:
        label = unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None
    if quote(label, safe=_SAFE) != text or "\0" in label:
        return None
    special = re.fullmatch(f"{IRI}|{BLANK}|{LITERAL}", label) or _NAMED_LABEL.fullmatch(label)
    return None if special else label


def _unescaped(term: str) -> str:
    """A term with the characters that its codes stand for; those that a literal must not hold as they are escaped."""
    content, quotation, behind = term, "", ""
    if term.startswith('"'):
        end = term.rindex('"')
        content, behind, quotation = term[1:end], term[end + 1 :], '"'
        behind = _ESCAPE.sub(_character, behind)
    found = _ESCAPE.sub(_character, content)
    if quotation:
        found = re.sub(r'[\t\b\n\r\f"\\]', lambda match: _CANONICAL[match[0]], found)
    elif not re.fullmatch(IRI, found):
        return term  # a code for a character that no IRI may hold stays what it is
    return f"{quotation}{found}{quotation}{behind}"


def _character(match: re.Match[str]) -> str:
    if match[3] is not None:
        return _SHORT[match[3]]
    code = int(match[1] or match[2], 16)
    return match[0] if code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)


def _where(rows: pa.Array, column: pa.Array, function: object) -> pa.StringArray:
    """The column with what a function makes of these rows; each distinct value is asked for once."""
    assert callable(function)
    chosen = column.filter(rows).dictionary_encode()
    made = pa.array([function(text) for text in chosen.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(column, rows, made.take(chosen.indices))
