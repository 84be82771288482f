"""RDF as facts: N-Triples, N-Quads and Turtle, read by pyoxigraph (extra `rdf`).

An RDF file gives a statement its confidence in one of three ways:

    << s p o >> ex:confidence 0.9 .                          RDF-star; in Turtle also  s p o {| ex:confidence 0.9 |} .
    r rdf:reifies <<( s p o )>> .  r ex:confidence 0.9 .     RDF 1.2, which the two above are short for
    r rdf:subject s ; rdf:predicate p ; rdf:object o ; ex:confidence 0.9 .                  a reified statement

Each such annotation is a fact, also where the same statement has several. The statement by itself, where the file has
it too, adds nothing. A statement without a confidence is an error, is left out, or has the default, as the caller says.
Other annotations of r and the names of graphs in N-Quads are ignored. Lines about one r need not stand together;
memory therefore holds all statements, but for those without a confidence where they are left out.

Each term has one label:

| term | label |
|---|---|
| an IRI that begins with a named prefix | `wd:Q42`, with `prefixes={"wd": "http://www.wikidata.org/entity/"}` |
| an IRI under the prefix without a name | what follows, percent signs decoded: `TP53`, `lives in` |
| another IRI of the usual schemes | itself: `http://example.org/a` |
| any other IRI | in its brackets: `<concept:athlete>` |
| a blank node | `_:b0`; `_:unnamed0`, `_:unnamed1` and so on where it has no name |
| a literal | as N-Triples spells it: `"Rome"@it`, `"1"^^<http://www.w3.org/2001/XMLSchema#integer>` |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from unkgcp.errors import InputError, at
from unkgcp.lazy import needed
from unkgcp.tabular.columns import NQUADS, NTRIPLES, TURTLE, WORDS, Request, Scale
from unkgcp.tabular.delimited import blocks_of
from unkgcp.tabular.fact_batches import LONGEST_LABEL, batch_of, objection_to_labels
from unkgcp.tabular.source import Source

UNNAMED_PREFIX = "urn:unkgcp:label:"
SCHEMES = ("http", "https", "urn", "ftp", "file", "tag", "mailto", "info", "did", "doi")
ROWS = 1 << 16  # of a batch

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_PARTS = {f"{RDF}subject": 0, f"{RDF}predicate": 1, f"{RDF}object": 2}
_CONFIDENCE = re.compile(
    rf"(?:^|[#/:])(?:has)?(?:{'|'.join(sorted(WORDS['confidence']))})(?:value|score|level)?>?$", re.IGNORECASE
)
_NUMBER_TYPE = "http://www.w3.org/2001/XMLSchema#"
_PREFIX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_RANDOM = re.compile(r"[0-9a-f]{28,32}|unnamed\d+")  # names that pyoxigraph makes, and ours

Triple = tuple[str, str, str]


def kind_of_line(line: str) -> str | None:
    """The format of RDF of a file that begins with this line, one of those of whole lines; None if it has none."""
    oxigraph = needed("pyoxigraph")
    format = oxigraph.RdfFormat.TURTLE if line.startswith("<<") else oxigraph.RdfFormat.N_QUADS
    try:
        quads = list(oxigraph.parse(line.encode(), format=format))
    except SyntaxError:
        return None
    return NTRIPLES if all(quad.graph_name == oxigraph.DefaultGraph() for quad in quads) else NQUADS


def fact_batches(source: Source, kind: str, request: Request) -> Iterator[pa.RecordBatch]:
    """The facts of an RDF file: those with a confidence, and then the others if they have the default."""
    for rows in _some(RdfFile(source, kind, request).facts()):
        *labels, confidence = zip(*rows, strict=True)
        columns = [pa.array(column, pa.string()).dictionary_encode() for column in labels]
        yield batch_of([*columns, pa.array(confidence, pa.float64())])


def query_statements(source: Source, kind: str, request: Request) -> Iterator[pa.RecordBatch]:
    """The statements of a file of queries, quoted ones too; those that stand together count once."""
    for rows in _some(RdfFile(source, kind, request).statements()):
        yield batch_of([pa.array(column, pa.string()) for column in zip(*rows, strict=True)])


def _some(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Many rows at a time."""
    while batch := list(islice(rows, ROWS)):
        yield batch


class RdfFile:
    """An open RDF file, read once: either its facts or its statements."""

    def __init__(self, source: Source, kind: str, request: Request) -> None:
        self._source, self._kind, self._request = source, kind, request
        self._scale = request.scale or Scale()
        self._labels = Labels(request.prefixes)
        self._by: str | None = None
        self._line: int | None = None  # that was read last, where lines are statements
        # by the name of a statement: its subject, predicate and object
        self._parts: dict[str, list[str | None]] = {}
        self._confidences: dict[str, tuple[str, str, float]] = {}  # by that name: predicate, text and number

    def facts(self) -> Iterator[tuple[str, str, str, float]]:
        """The facts, and then, unless they are left out, the statements without a confidence with the default."""
        skip = self._request.skip_missing
        bare = [triple for name, triple in self._events() if name is None and triple is not None and not skip]
        bare = [triple for triple in bare if triple[0] not in self._parts]
        facts: dict[str, Triple] = {}
        for name, parts in self._parts.items():
            statement, has_confidence = self._statement(name), name in self._confidences
            if statement is not None and has_confidence:
                facts[name] = statement
            elif statement is not None:
                bare.append(statement)
            elif not skip and (any(parts) or has_confidence):
                raise InputError(
                    f"{self._source.name} describes the statement {name}, which lacks rdf:subject, rdf:predicate or "
                    "rdf:object: complete it or remove it"
                )
        for name, statement in facts.items():
            yield (*statement, self._confidences[name][2])
        if skip:
            return
        # a confidence of what is no statement is a statement like any other
        bare += [(name, *event[:2]) for name, event in self._confidences.items() if name not in self._parts]
        annotated = set(facts.values())
        left = [triple for triple in dict.fromkeys(bare) if triple not in annotated]
        default = self._request.default_confidence
        if left and default is None and not facts:
            raise InputError(
                f"{self._source.name} has no statement with a confidence (RDF-star, rdf:reifies or rdf:Statement): "
                "name the predicate of the confidence with the setting confidence_predicates, or give all of them one "
                "with default_confidence"
            )
        if left and default is None:
            others = f", nor have {len(left) - 1} others" if len(left) > 1 else ""
            raise InputError(
                f"{self._source.name} has no confidence for the statement {' '.join(left[0])[:200]}{others}: add it, "
                "leave such statements out with the setting skip_missing, or give them one with default_confidence"
            )
        for triple in left:
            yield (*triple, default or 0.0)

    def statements(self) -> Iterator[Triple]:
        """The statements of a file of queries."""
        last = None
        for name, triple in self._events(queries=True):
            statement = triple if name is None else self._statement(name)
            if statement is not None and statement != last:
                last = statement
                yield statement

    def _statement(self, name: str) -> Triple | None:
        subject, predicate, object_ = self._parts.get(name, (None, None, None))
        return (
            None if subject is None or predicate is None or object_ is None else (subject, predicate, object_)
        )

    # what each line says

    def _events(self, queries: bool = False) -> Iterator[tuple[str | None, Triple | None]]:
        """The name of a statement of which something new is known, or a statement that stands by itself."""
        triple_of, predicates = self._labels.triple, self._request.confidence_predicates
        predicates = predicates and tuple(predicates)
        for quad in self._quads():
            predicate = quad.predicate.value
            name, label, text = triple = triple_of(quad)
            if len(name) + len(label) + len(text) > LONGEST_LABEL // 4 and (
                wrong := objection_to_labels(triple)
            ):
                raise InputError(f"{self._place()} {wrong}")
            if predicate == f"{RDF}reifies" and hasattr(quad.object, "subject"):
                for part, what in enumerate(triple_of(quad.object)):
                    self._set(name, part, what)
                yield name, None
            elif predicate in _PARTS:
                self._set(name, _PARTS[predicate], text)
                yield name, None
            elif predicate == f"{RDF}type" and quad.object.value == f"{RDF}Statement":
                self._parts.setdefault(name, [None, None, None])
            elif _tells_confidence(predicate, label, predicates) and not queries:
                if self._add_confidence(name, label, quad.object, text):
                    yield name, None
            elif name not in self._parts:
                yield None, triple

    def _set(self, name: str, part: int, what: str) -> None:
        parts = self._parts.setdefault(name, [None, None, None])
        if parts[part] not in (None, what):
            term = ("subject", "predicate", "object")[part]
            raise InputError(
                f"{self._place()} has two times rdf:{term} for the statement {name}: remove one of them"
            )
        parts[part] = what

    def _add_confidence(self, name: str, predicate: str, term: Any, text: str) -> bool:
        """Whether this is the confidence of a statement, and not one that was there already."""
        if name in self._confidences:
            if self._confidences[name][1] != text:
                raise InputError(
                    f"{self._place()} has two confidences for the statement {name}: remove one of them, or choose with "
                    "the setting confidence_predicates"
                )
            return False
        self._by = self._by or predicate
        if predicate != self._by and self._request.confidence_predicates is None:
            raise InputError(
                f"{self._source.name} has {self._by!r} and {predicate!r}, which may both tell the confidence: "
                "choose with the setting confidence_predicates"
            )
        self._confidences[name] = predicate, text, self._number(name, term, text)
        return True

    def _number(self, name: str, term: Any, text: str) -> float:
        statement = self._statement(name)
        shown = f"the statement {' '.join(statement)}"[:200] if statement else f"the statement {name}"
        datatype = getattr(getattr(term, "datatype", None), "value", "")
        try:
            if not datatype.startswith(_NUMBER_TYPE) or "_" in term.value:
                raise ValueError
            number = float(term.value)
        except ValueError:
            raise InputError(
                f"{self._place()} has {text[:60]!r} as the confidence of {shown}, no number: correct it"
            ) from None
        if wrong := self._scale.objection(number):
            raise InputError(f"{self._place()} {wrong.replace(':', f', for {shown}:', 1)}")
        return number

    # lines

    def _quads(self) -> Iterator[Any]:
        oxigraph = needed("pyoxigraph")
        if self._kind == TURTLE:
            try:
                yield from oxigraph.parse(self._source, format=oxigraph.RdfFormat.TURTLE)
            except SyntaxError as error:
                raise self._no_rdf(error, error.lineno) from None
            return
        # Turtle's parser reads N-Triples, and RDF-star, which that of N-Triples does not
        format = oxigraph.RdfFormat.N_QUADS if self._kind == NQUADS else oxigraph.RdfFormat.TURTLE
        for block in blocks_of(self._source, quoted=False):
            for self._line, line in enumerate(bytes(block.text).split(b"\n"), block.line):
                try:
                    yield from oxigraph.parse(line, format=format)
                except SyntaxError as error:
                    raise self._no_rdf(error, self._line) from None

    def _place(self) -> str:
        """The file, and the line that was read last, where lines are statements."""
        return at(self._source.name, self._line)

    def _no_rdf(self, error: SyntaxError, line: int | None) -> InputError:
        name = {NTRIPLES: "N-Triples", NQUADS: "N-Quads", TURTLE: "Turtle"}[self._kind]
        reason = re.sub(r"^Parser error at line [^:]*: ", "", error.msg).rstrip(".")
        return InputError(
            f"{at(self._source.name, line)} is no {name} ({reason}): correct it, or name another --format"
        )


class Labels:
    """The labels of terms."""

    def __init__(self, prefixes: Mapping[str, str] | None = None) -> None:
        named = dict(prefixes or {})
        for name, start in named.items():
            if not re.fullmatch(r'[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\]*', start):
                raise InputError(f"the prefix {name}={start} does not begin an IRI: give NAME=http://...")
            if name and (not _PREFIX_NAME.fullmatch(name) or name in SCHEMES):
                raise InputError(
                    f"the prefix {name!r} is no name for one: use letters and digits, and none of the web's schemes"
                )
        if len(set(named.values())) < len(named):
            raise InputError("two prefixes stand for the same beginning of IRIs: leave one of them out")
        self._under = named.pop("", UNNAMED_PREFIX)
        # the longest first: of two that fit, the nearer one
        self._named = sorted(named.items(), key=lambda item: -len(item[1]))
        self._unnamed: dict[str, str] = {}

    def triple(self, statement: Any) -> Triple:
        """The labels of subject, predicate and object."""
        return self.label(statement.subject), self.label(statement.predicate), self.label(statement.object)

    def label(self, term: Any) -> str:
        kind = type(term).__name__
        if kind == "NamedNode":
            return self.of_iri(term.value)
        if kind == "BlankNode" and _RANDOM.fullmatch(term.value):
            # counted, so that the same file gives the same labels; our own names are, so that no two become one
            return self._unnamed.setdefault(term.value, f"_:unnamed{len(self._unnamed)}")
        return str(term)

    def of_iri(self, iri: str) -> str:
        """The label of an IRI.

        >>> Labels({"ex": "http://example.org/"}).of_iri("http://example.org/a")
        'ex:a'
        """
        for name, start in self._named:
            if iri.startswith(start) and iri != start:
                return f"{name}:{iri[len(start) :]}"
        if iri.startswith(self._under) and iri != self._under:
            label = unquote(iri[len(self._under) :])
            # not where it would look like another term
            if not re.search("[:\0\ufffd]", label) and label[0] not in '"<':
                return label
        return iri if iri.partition(":")[0] in SCHEMES else f"<{iri}>"


@lru_cache
def _tells_confidence(iri: str, label: str, predicates: tuple[str, ...] | None) -> bool:
    return (
        bool(_CONFIDENCE.search(label))
        if predicates is None
        else not {iri, label, f"<{iri}>"}.isdisjoint(predicates)
    )
