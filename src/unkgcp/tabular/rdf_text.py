"""The text of RDF: labels and terms, lines of N-Triples and N-Quads as columns of terms, and Turtle as such lines.

Each term has one label, and each label is one term, so that what was read is written again:

| term | label |
|---|---|
| an IRI that begins with a named prefix | `wd:Q42`, with `prefixes={"wd": "http://www.wikidata.org/entity/"}` |
| an IRI under the prefix without a name | what follows, percent signs decoded: `TP53`, `lives in` |
| another IRI of the usual schemes | itself: `http://example.org/a` |
| any other IRI | in its brackets: `<concept:athlete>` |
| a blank node | `_:b0` |
| a literal | as N-Triples spells it: `"Rome"@it`, `"1"^^<http://www.w3.org/2001/XMLSchema#integer>` |

The prefix without a name is `urn:unkgcp:label:` unless another is given, so that labels of any file have an IRI. A
label such as `ex:a` whose prefix nobody named is refused, because it may have come from another IRI.

>>> names = Prefixes({"ex": "http://example.org/"})
>>> names.labels(pa.array(["<http://example.org/a>", "<urn:unkgcp:label:lives%20in>"])).to_pylist()
['ex:a', 'lives in']
>>> names.terms(pa.array(["ex:a", "lives in"])).to_pylist()
['<http://example.org/a>', '<urn:unkgcp:label:lives%20in>']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import IO, NamedTuple, cast
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unkgcp.errors import InputError, at, missing
from unkgcp.tabular.arrow_arrays import Malformed
from unkgcp.tabular.columns import NQUADS, NTRIPLES
from unkgcp.tabular.source import Source

OWN = "urn:unkgcp:label:"
SCHEMES = ("http", "https", "urn", "ftp", "file", "tag", "mailto", "info", "did", "doi")
STRING = "^^<http://www.w3.org/2001/XMLSchema#string>"

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
        typed = pc.ends_with(terms, STRING)
        if typed.true_count:
            terms = pc.if_else(typed, pc.utf8_slice_codeunits(terms, 0, -len(STRING)), terms)
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
    if term.startswith('"'):
        end = term.rindex('"')
        text = _ESCAPE.sub(_character, term[1:end])
        text = re.sub(r'[\t\b\n\r\f"\\]', lambda match: _CANONICAL[match[0]], text)
        return f'"{text}"{_ESCAPE.sub(_character, term[end + 1 :])}'
    found = _ESCAPE.sub(_character, term)
    return (
        found if re.fullmatch(IRI, found) else term
    )  # a code for a character that no IRI may hold stays a code


def _character(match: re.Match[str]) -> str:
    if match[3] is not None:
        return _SHORT[match[3]]
    code = int(match[1] or match[2], 16)
    return match[0] if code > 0x10FFFF or 0xD800 <= code < 0xE000 else chr(code)


def _where(rows: pa.Array, column: pa.Array, function: Callable[[str], str]) -> pa.StringArray:
    """The column with these rows replaced by what a function makes of them, called once for each distinct value."""
    chosen = column.filter(rows).dictionary_encode()
    made = pa.array([function(text) for text in chosen.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(column, rows, made.take(chosen.indices))


# Lines of N-Triples and N-Quads, read by patterns, whole blocks at once. pyoxigraph will not do: it knows RDF 1.2 only,
# where `<< s p o >>` cannot begin a line of N-Triples, while most RDF-star files in the world have just that. Here both
# are read: `<< s p o >> p v .` (RDF-star) and `r rdf:reifies <<( s p o )>> .` (RDF 1.2).

_ = r"[ \t]*"
_NODE = f"(?:{IRI}|{BLANK})"
_VALUE = f"(?:{IRI}|{BLANK}|{LITERAL})"
_END = rf"{_}\.{_}(?:#[^\n]*)?\r?\n?$"
_NOTHING = rf"^{_}(?:#[^\n]*)?\r?\n?$"
# Terms of a line that is known to be right, with one blank between them: far quicker than the exact patterns.
_ONE_NODE = r'(?:<[^>]*>|_:[^ \t<>"]+)'
_ONE_IRI = "<[^>]*>"
_ONE_VALUE = r'(?:<[^>]*>|_:[^ \t<>"]+|"(?:[^"\\]|\\.)*"(?:\^\^<[^>]*>|@[A-Za-z0-9-]+)?)'


class Form(NamedTuple):
    """Patterns with a named group for each term of a line: `quick` fits most lines that `exact` fits."""

    quick: str
    exact: str


def _form(template: str, fields: str, graph: bool) -> Form:
    """The patterns of lines like `template`, where n is a node, i an IRI and v any term; `fields` name these terms."""

    def pattern(terms: dict[str, str], between: str) -> str:
        names = iter(fields)
        return between.join(
            f"(?P<{next(names)}>{terms[part]})" if part in terms else re.escape(part)
            for part in template.split(" ")
        )

    quick = pattern({"n": _ONE_NODE, "i": _ONE_IRI, "v": _ONE_VALUE}, " ")
    exact = pattern({"n": _NODE, "i": IRI, "v": _VALUE}, _)
    return Form(
        rf"^{quick}{f'(?: {_ONE_NODE})?' if graph else ''} \.\r?\n?$",
        f"^{_}{exact}{f'(?:{_}{_NODE})?' if graph else ''}{_END}",
    )


_FORMS = {
    quads: {
        "plain": _form("n i v", "spo", quads),
        "quoted": _form("<< n i v >> i v", "spocv", quads),
        "reifying": _form("n i <<( n i v )>>", "rcspo", quads),
    }
    for quads in (False, True)
}
# RDF-star allows a quoted statement as the object, which a graph of triples cannot hold.
_QUOTED_OBJECT = rf"^{_}{_NODE}{_}{IRI}{_}<<{_}{_NODE}{_}{IRI}{_}{_VALUE}{_}>>{_END}"


class Lines(NamedTuple):
    """The statements of a block, each kind with its terms (s, p, o; c and v of a quoted statement; r and c of one that
    is given a name r) as N-Triples spells them, and the number of its line in the block, from 0.
    """

    plain: pa.Table
    quoted: pa.Table
    reifying: pa.Table
    size: int


def parse(block: pa.Buffer, kind: str) -> Lines:
    """The statements of whole lines; `Malformed` if one is none."""
    lines = lines_of(block)
    numbers = np.flatnonzero(np.asarray(pc.invert(pc.match_substring_regex(lines, _NOTHING))))
    left, found = lines.take(pa.array(numbers)), {}
    forms = _FORMS[kind == NQUADS]
    # most files hold lines of one form only, so the form of the first line is tried first
    quoted = len(left) and left[0].as_py().lstrip().startswith("<<")
    for name in sorted(forms, key=lambda name: name != "quoted") if quoted else forms:
        mask = pc.match_substring_regex(left, forms[name].exact)
        rows = np.asarray(mask)
        found[name] = _terms(left.filter(mask), numbers[rows], forms[name])
        left, numbers = left.filter(pc.invert(mask)), numbers[~rows]
    if len(left):
        raise Malformed
    return Lines(found["plain"], found["quoted"], found["reifying"], len(lines))


def _terms(chosen: pa.Array, numbers: NDArray[np.intp], form: Form) -> pa.Table:
    terms = pc.extract_regex(chosen, form.quick)
    if terms.null_count:
        exact = pc.extract_regex(chosen.filter(terms.is_null()), form.exact)
        rows = np.asarray(terms.is_null())
        order = np.where(rows, len(terms) + np.cumsum(rows) - 1, np.arange(len(terms)))
        terms = pa.concat_arrays([terms, exact]).take(pa.array(order))
    table = (
        pa.Table.from_struct_array(terms)
        if len(terms)
        else pa.table({field.name: pa.array([], pa.string()) for field in terms.type})
    )
    return table.append_column("line", pa.array(numbers, pa.int64()))


def lines_of(block: pa.Buffer) -> pa.StringArray:
    """Each line of a block with its end; `Malformed` if they are not valid UTF-8."""
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) + 1
    if not len(ends) or ends[-1] < len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), block])
    try:
        return lines.cast(pa.string())
    except pa.ArrowInvalid:
        raise Malformed from None


def is_statement(line: str, kind: str) -> bool:
    """Whether a line is a statement, slowly."""
    return any(re.search(form.exact, line) for form in _FORMS[kind == NQUADS].values())


def objection(block: pa.Buffer, kind: str) -> tuple[int, str]:
    """The first line of a block that is no statement, from 0, and what is wrong with it as the end of a sentence."""
    for number, raw in enumerate(block.to_pybytes().split(b"\n")):
        try:
            line = raw.decode()
        except UnicodeDecodeError:
            return number, "is not valid UTF-8: save the file as UTF-8 or correct the line"
        if not re.search(_NOTHING, line) and not is_statement(line, kind):
            return number, _objection(line, kind)
    return 0, "cannot be read: correct it"


def _objection(line: str, kind: str) -> str:
    shown = repr(line.strip() if len(line.strip()) <= 80 else line.strip()[:77] + "...")
    if re.search(_QUOTED_OBJECT, line):
        return f"has a statement as its object ({shown}): remove it, only a subject can be one here"
    if kind == NTRIPLES and is_statement(line, NQUADS):
        return "names a graph, which N-Triples does not: give --format nquads"
    if not re.search(r"\.\s*(?:#.*)?$", line):
        return f"does not end in a dot ({shown}): correct it, or give --format turtle if it is Turtle"
    name = "N-Quads" if kind == NQUADS else "N-Triples"
    return f"is no statement of {name} ({shown}): correct it, or give --format turtle if it is Turtle"


# Turtle. pyoxigraph (extra `rdf`) parses it and writes N-Triples, so that what comes after is the same for all formats.

QUADS = 1 << 16  # written as N-Triples at a time


def turtle_blocks(source: Source) -> Iterator[pa.Buffer]:
    """The triples of a Turtle file as blocks of N-Triples."""
    try:
        from pyoxigraph import RdfFormat, parse, serialize
    except ModuleNotFoundError as error:
        raise missing(error) from None
    renamed = _renaming()
    try:
        triples = parse(cast(IO[bytes], _Reader(source)), format=RdfFormat.TURTLE)
        while some := list(islice(triples, QUADS)):
            text = serialize((quad.triple for quad in some), format=RdfFormat.N_TRIPLES)
            yield pa.py_buffer(renamed(text or b""))
    except SyntaxError as error:
        reason = re.sub(r"^Parser error at line [^:]*: ", "", error.msg)
        raise InputError(
            f"{at(source.name, error.lineno)} is no Turtle ({reason.rstrip('.')}): correct it"
        ) from None


class _Reader:
    """A source as a file for pyoxigraph."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def read(self, size: int = -1) -> bytes:
        found = bytearray(size if size > 0 else 1 << 16)
        return bytes(found[: self._source.readinto(memoryview(found))])


_RANDOM = re.compile(rb'("(?:[^"\\\n]|\\.)*")|_:([0-9a-f]{28,32}|unnamed\d+)(?![\w.-]*\w)')


def _renaming() -> Callable[[bytes], bytes]:
    """Counts blank nodes that have no name, to which pyoxigraph gives random ones: the same file gives the same labels.

    Names of the file that look like ours are counted as well, so that no two nodes become one.
    """
    names: dict[bytes, bytes] = {}

    def name(match: re.Match[bytes]) -> bytes:
        if match[1] is not None:
            return match[0]  # a literal that looks like a node
        return names.setdefault(match[2], b"_:unnamed%d" % len(names))

    return lambda text: _RANDOM.sub(name, text)
