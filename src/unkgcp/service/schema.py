"""What requests and answers look like: requests are validated by these models, and both are in the OpenAPI document.

Answers are columns with one entry for each triple, named as in `unkgcp.methods.intervals.columns`. The models name
those that every run has; what some methods tell besides (`promise`, `belief`, ...) is a further column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

DEFAULT_LEVEL = 0.9
MAX_LEVELS = 20
MAX_K = 1000
LONGEST_LABEL = 4096

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
OpenShare = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Label = Annotated[str, Field(max_length=LONGEST_LABEL)]
Triple = Annotated[list[Label], Field(min_length=3, max_length=3)]
# nothing is looked at after the first wrong one: a sentence for each of a million would take seconds
Triples = Annotated[list[Triple], FailFast()]
Levels = Share | Annotated[list[Share], Field(min_length=1, max_length=MAX_LEVELS)]
Numbers = list[float | None] | list[list[float | None]]


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class IntervalsRequest(Document):
    """Triples of labels, and the level of their intervals; several levels give a list of ends for each triple."""

    triples: Triples = Field(examples=[[["head", "relation", "tail"]]])
    confidence: Levels = DEFAULT_LEVEL


class SelectRequest(IntervalsRequest):
    """Candidates, and what is asked of them: `confidence >= 0.7`, `0.3 <= confidence < 0.7`."""

    triples: Triples = Field(min_length=1)
    condition: Annotated[str, Field(max_length=200, examples=["confidence >= 0.7"])]
    fdr: OpenShare | Annotated[list[OpenShare], Field(min_length=1, max_length=MAX_LEVELS)] = 0.1


class AnswersRequest(Document):
    """A question with either head or tail, and the probability with which the set shall contain the other."""

    head: Label | None = None
    relation: Label
    tail: Label | None = None
    confidence: OpenShare = DEFAULT_LEVEL
    k: Annotated[int, Field(ge=1, le=MAX_K)] = 100
    min_confidence: Share = 0.0
    per: Literal["relation", "none"] = "relation"


class Problem(Document):
    detail: str = Field(description="One sentence for each problem, with what to do.")


class IntervalColumns(BaseModel):
    """One entry for each triple, in the order of the request; null where there is none."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[Any]]

    confidence: float | list[float] = Field(description="The level or levels of the request.")
    score: list[float | None] = Field(description="The mean of what is expected.")
    lower: Numbers = Field(description="Lower ends; a list for each triple where there are several levels.")
    upper: Numbers
    status: list[Literal["ok", "unknown-entity", "unknown-relation"]]
    notes: list[str] = Field(description="What to know about these levels, e.g. too few calibration facts.")


class SelectionColumns(IntervalColumns):
    """`selected` says which candidates are chosen; several shares give `selected_5`, `selected_10` and so on."""

    p_value: list[Share] = Field(description="How often a wrong one would look as good.")
    condition: str
    fdr: float | list[float]
    guarantee: str = Field(description="What is promised of the selected, and for which candidates.")


class CompletionColumns(IntervalColumns):
    """One entry for each completion, the best first."""

    head: list[str | None]
    relation: list[str]
    tail: list[str | None]
    known: list[float | None] = Field(description="The confidence of those that are training facts.")
    presumption: str | None = Field(description="What the intervals presume of a completion.")


class SetMember(Document):
    entity: str
    share: float = Field(description="Its share of the likelihood of all candidates; no promise.")


class SetDocument(Document):
    """A set of entities that contains the open place of a new fact with the probability asked for."""

    confidence: float
    size: int = Field(description="Entities in the whole set.")
    candidates: int = Field(
        description="Entities that could be in it: those that answer by no training fact."
    )
    known: int = Field(description="Entities that answer by a training fact; a new fact is none of these.")
    answers: list[SetMember] = Field(description="The best of the set first, at most k of them.")
    status: Literal["ok", "unknown-entity", "unknown-relation"]
    calibration: int = Field(description="Calibration facts that set its threshold.")
    promise: str | None = Field(description="Whose calibration facts these are.")
    notes: list[str]


class LabelEntry(Document):
    label: str
    facts: int | None = Field(description="Training facts with it; null where the run holds none.")


class LabelList(Document):
    labels: list[LabelEntry]
    more: bool = Field(description="Whether there are more labels than these.")


class FactEntry(Document):
    head: str
    relation: str
    tail: str
    confidence: float


class FactSummary(Document):
    count: int
    mean: float | None = Field(description="Mean confidence; null where there is no fact.")


class FactGroup(FactSummary):
    """Facts around a triple; `paths` counts entities with a fact to either end, and lists two facts for each."""

    name: Literal["same", "pair", "reversed", "head_relation", "relation_tail", "paths"]
    facts: list[FactEntry] = Field(description="The strongest of them.")


class EvidenceDocument(Document):
    groups: list[FactGroup]
    head: FactSummary
    relation: FactSummary
    tail: FactSummary


class DistributionCell(Document):
    low: float
    high: float = Field(description="Equal to low for a single value.")
    mass: float


class DistributionDocument(Document):
    """What the model believes; only intervals are promised."""

    cells: list[DistributionCell] = Field(description="From 0 to 1; their masses add up to 1.")


class SingleAnswer(Document):
    score: float
    lower: float | None
    upper: float | None


class FactEffect(FactEntry, SingleAnswer):
    """A training fact, and the answer that there would be without it."""

    change: float = Field(description="The score with the fact less that without it.")


class EffectsDocument(SingleAnswer):
    facts: list[FactEffect] = Field(description="Those that change the score most first.")
    note: str


class AboutDocument(Document):
    version: str
    run: str
    data: str | None
    model: str
    method: str
    guarantee: str
    calibration_facts: int
    entities: int
    relations: int
    facts: int | None = Field(description="Training facts that the run holds; null where it holds none.")
    fitted: str | None = Field(description="When the run was made.")
    kinds: dict[str, dict[str, Any]] = Field(description="Coverage, width and score of test facts by kind.")
    examples: list[list[str]] = Field(description="A few training facts to begin with.")
    max_triples: int
    max_body: int


PROBLEMS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "A reload needs a service with a token.",
    404: "The run has no such thing.",
    408: "The body took too long to arrive.",
    409: "The run could not be loaded again; the one before answers.",
    413: "The request is too large.",
    422: "A value is not what it should be.",
    503: "Too much is waiting, or there was no answer in time; try again later.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a path, for the OpenAPI document."""
    return {status: {"model": Problem, "description": PROBLEMS[status]} for status in statuses}


def sentences(errors: Sequence[Any]) -> str:
    """A sentence for each wrong field that pydantic found in a request, at most three."""
    by_field: dict[Any, str] = {}
    for error in errors:
        place = error["loc"][1:]
        by_field.setdefault(place[:1], _sentence(error, place))
    shown = list(by_field.values())[:3]
    return "; ".join([*shown, *([f"and {len(by_field) - 3} more"] if len(by_field) > 3 else [])])


def _sentence(error: Any, place: tuple[str | int, ...]) -> str:
    kind, message = error["type"], f"{error['msg'][:1].lower()}{error['msg'][1:]}"
    if kind == "json_invalid":
        return f"the body is not valid JSON: {error['ctx']['error']}"
    if not place:
        return "the body must be a JSON object, sent with the header Content-Type: application/json"
    # beside the name only positions in lists say something: other steps are the alternatives that were tried
    name = str(place[0]) + "".join(f"[{step}]" for step in place[1:] if isinstance(step, int))
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"there is no field called {quoted(name)}; see /openapi.json"
    return f"{name} is {quoted(error['input'])}: {message}"


def quoted(value: object, longest: int = 60) -> str:
    """A client's own words inside a sentence, cut to a length that fits."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
