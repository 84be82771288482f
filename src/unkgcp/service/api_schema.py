"""What requests and answers look like, for the OpenAPI document. Nothing is validated with these at run time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from unkgcp.service.limits import Settings

Status = Literal["ok", "unknown-entity", "unknown-relation"]
Promise = Literal["relation", "similar relations", "none"]
Share = Field(ge=0, le=1)
End = Annotated[float, Share] | None

PROMISE = "Only of a run that promises per relation: whose calibration facts the promise stands on."
NO_FACT = (
    "Only of a run whose queries may be no facts: whether that remains possible. "
    "Lower and upper are then the hull of 0 and the fact's interval."
)
FACT_LOWER = "Lower ends if it is a fact; only of such a run."
VALUE = (
    "Only of a run that answers from a distribution (method evidence): a value that lies in every interval of the "
    "triple that is not empty; null for an unknown query."
)
BELIEF = "The probability that the distribution gives to it; what the model believes, and no promise."
OTHER = "The likeliest value beside it, where its probability is above 0.15; null elsewhere."
OTHER_BELIEF = "The probability of that one."
PRESUMES_FACT = (
    "Not of runs for the open world: the interval is one for a fact, which a completion need not be."
)
EXPECTED = "Only of evidence runs, which rank by it: the confidence to be expected if what is no fact has 0."


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class Error(Document):
    error: str = Field(description="One sentence that says what is wrong and what to do.")


class Health(Document):
    status: Literal["ok"]


class Answers(Document):
    """What answers have in common: fields with a default are missing in the answers of most runs."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)


class Intervals(Answers):
    """Columns with one entry for each triple, in the order of the request."""

    confidence: float | list[float] = Field(description="The level or levels, as asked.")
    score: list[Annotated[float, Share] | None] = Field(
        description="The predicted confidences; null for an unknown query."
    )
    lower: list[End] | list[list[End]] = Field(
        description="Lower ends; a list for each triple where several levels were asked for. Null if empty."
    )
    upper: list[End] | list[list[End]] = Field(description="Upper ends, likewise.")
    status: list[Status]
    notes: list[str] = Field(description="What to know about these levels, e.g. too few calibration facts.")
    promise: list[Promise] = Field(default=[], description=PROMISE)
    no_fact: list[bool] | list[list[bool]] = Field(default=[], description=NO_FACT)
    fact_lower: list[End] | list[list[End]] = Field(default=[], description=FACT_LOWER)
    fact_upper: list[End] | list[list[End]] = Field(default=[], description="Upper ends, likewise.")
    value: list[End] = Field(default=[], description=VALUE)
    belief: list[End] = Field(default=[], description=BELIEF)
    other: list[End] = Field(default=[], description=OTHER)
    other_belief: list[End] = Field(default=[], description=OTHER_BELIEF)


class Selection(Intervals):
    """The columns of `Intervals`, a p-value for each candidate and whether it is selected.

    With several shares of wrong ones there is a column for each, named by its percent: `selected_5`, `selected_10`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, list[bool]] = Field(init=False)

    p_value: list[Annotated[float, Share]] = Field(
        description="How often a wrong one would look as good; 1 for an unknown query."
    )
    selected: list[bool] = Field(
        default=[], description="Whether it is selected, where one share of wrong ones was given."
    )
    condition: str = Field(description="What is asked of the confidence, as it was understood.")
    fdr: float | list[float] = Field(description="The allowed share or shares of wrong ones, as asked.")
    guarantee: str = Field(description="What is promised of the selected, and for which candidates.")


class Completion(Answers):
    """What `Intervals` has for a triple. Several levels give a list of ends for each of them."""

    head: str
    relation: str
    tail: str
    score: float = Share
    lower: End | list[End] = Field(description="Null if the interval is empty.")
    upper: End | list[End]
    status: Status
    known: float | None = Field(ge=0, le=1, description="Its confidence, where it is a training fact.")
    promise: Promise | None = Field(default=None, description=PROMISE)
    no_fact: bool | list[bool] | None = Field(default=None, description=NO_FACT)
    fact_lower: End | list[End] = Field(default=None, description=FACT_LOWER)
    fact_upper: End | list[End] = Field(default=None, description="The upper end, likewise.")
    value: End = Field(default=None, description=VALUE)
    belief: End = Field(default=None, description=BELIEF)
    other: End = Field(default=None, description=OTHER)
    other_belief: End = Field(default=None, description=OTHER_BELIEF)
    presumes_fact: bool | None = Field(default=None, description=PRESUMES_FACT)
    expected: End = Field(default=None, description=EXPECTED)


class Completions(Document):
    confidence: float | list[float] = Field(description="The level or levels, as asked.")
    answers: list[Completion] = Field(description="The best first.")
    notes: list[str]


class Answer(Document):
    rank: int = Field(ge=1)
    head: str
    relation: str
    tail: str
    share: float = Field(
        ge=0,
        le=1,
        description="Its share of the likelihood of all candidates, as the run sees it; no promise.",
    )


class AnswerSet(Document):
    """A set of entities that contains the open place of a new fact with the probability asked for."""

    confidence: float = Field(description="The level, as asked.")
    min_confidence: float = Field(description="The promise is for new facts from this confidence on.")
    size: int = Field(description="How many entities the whole set has.")
    candidates: int = Field(description="How many could be in it: those that answer by no training fact.")
    everything: bool = Field(description="Whether all of them are, so that the set says nothing.")
    known: int = Field(description="Entities that answer by a training fact; a new fact is none of these.")
    answers: list[Answer] = Field(description="The best of the set first, at most k of them.")
    more: bool = Field(description="Whether the set has more than these.")
    calibration_facts: int = Field(description="Calibration facts that set its threshold.")
    promise: Promise | None = Field(description="Whose calibration facts these are; null for per none.")
    notes: list[str]


class Label(Document):
    label: str
    facts: int | None = Field(description="Training facts with it; null where the run holds none.")


class Labels(Document):
    labels: list[Label]
    more: bool = Field(description="Whether there are more labels than these.")


class Fact(Document):
    head: str
    relation: str
    tail: str
    confidence: float


class Summary(Document):
    count: int = Field(ge=0)
    mean: float | None = Field(description="Mean confidence; null where there is no fact.")


class Group(Summary):
    name: Literal["same", "pair", "reversed", "head_relation", "relation_tail"]
    facts: list[Fact] = Field(description="The strongest of them.")


class Paths(Document):
    count: int = Field(ge=0, description="Entities that have a fact with the head and one with the tail.")
    facts: list[Fact] = Field(
        description="Two facts for each of the strongest, the head's before the tail's."
    )


class Evidence(Document):
    groups: list[Group]
    paths: Paths
    head: Summary = Field(description="All facts of the head.")
    relation: Summary = Field(description="All facts of the relation.")
    tail: Summary = Field(description="All facts of the tail.")


class Cell(Document):
    low: float = Share
    high: float = Field(ge=0, le=1, description="Equal to low for a single value.")
    mass: float = Share


class Distribution(Document):
    """What the model believes; only intervals are promised."""

    score: float = Field(ge=0, le=1, description="Its mean.")
    value: End = Field(description="A value that lies in every interval of the triple that is not empty.")
    belief: End = Field(description="The probability of that value.")
    cells: list[Cell] = Field(description="From 0 to 1; their masses add up to 1.")


class Changed(Fact):
    """A training fact, and the answer that there would be without it."""

    score: float = Share
    lower: End
    upper: End
    change: float = Field(ge=-1, le=1, description="The score with the fact less that without it.")


class Without(Document):
    score: float = Share
    lower: End
    upper: End
    facts: list[Changed] = Field(description="Those that change the score most first.")
    around: int = Field(
        ge=0, description="Training facts around the triple, of which the closest were tried."
    )
    note: str = Field(description="What was done.")


class About(Document):
    version: str
    data: str | None = Field(description="Name of the data the run was fitted on.")
    model: str
    method: str
    guarantee: str
    calibration_facts: int
    entities: int
    relations: int
    facts: int | None = Field(description="Training facts that the run holds; null where it holds none.")
    max_triples: int
    max_k: int


class Run(Document):
    name: str = Field(description="Its paths are those under /v1, after /runs/ and this name.")
    data: str | None
    model: str
    method: str


class Runs(Document):
    runs: list[Run] = Field(description="The first is the one that answers under /v1.")


def intervals_request(settings: Settings) -> dict[str, Any]:
    """The schema of the body of `POST /v1/intervals`."""
    example = {"triples": [["head", "relation", "tail"]], "confidence": [0.8, 0.9]}
    return _body("IntervalsRequest", _asked(settings), ["triples"], example)


def selection_request(settings: Settings) -> dict[str, Any]:
    """The schema of the body of `POST /v1/select`."""
    fields = _asked(settings)
    fields["triples"]["minItems"] = 1
    fields["condition"] = {
        "type": "string",
        "description": "What is asked of the confidence: `confidence >= 0.7`, `confidence < 0.3` or "
        "`0.3 <= confidence < 0.7`, for instance.",
    }
    share = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    fields["fdr"] = {**_one_or_several(share, settings), "default": 0.1}
    fields["fdr"]["description"] = "The allowed share of wrong ones among the selected; each once."
    example = {"triples": [["head", "relation", "tail"]], "condition": "confidence >= 0.7", "fdr": 0.1}
    return _body("SelectionRequest", fields, ["triples", "condition"], example)


def answers_request(settings: Settings) -> dict[str, Any]:
    """The schema of the body of `POST /v1/answers`."""
    label, share = {"type": "string"}, {"type": "number", "minimum": 0, "maximum": 1}
    fields = {
        **dict.fromkeys(("head", "relation", "tail"), label),
        "confidence": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1, "default": 0.9},
        "k": {"type": "integer", "minimum": 1, "maximum": settings.max_k, "default": 100},
        "min_confidence": share | {"default": 0},
        "per": {"enum": ["relation", "none"], "default": "relation"},
    }
    example = {"head": "head", "relation": "relation", "confidence": 0.9}
    either = [{"required": ["head"]}, {"required": ["tail"]}]
    return _body("AnswersRequest", fields, ["relation"], example, oneOf=either)


def _asked(settings: Settings) -> dict[str, Any]:
    """Triples and levels."""
    label = {"type": "string"}
    level = {"type": "number", "minimum": 0, "maximum": 1}
    fields = dict.fromkeys(("head", "relation", "tail"), label)
    triple = {
        "anyOf": [
            {"type": "array", "items": label, "minItems": 3, "maxItems": 3},
            {
                "type": "object",
                "properties": fields,
                "required": list(fields),
                "additionalProperties": False,
            },
        ]
    }
    return {
        "triples": {"type": "array", "items": triple, "maxItems": settings.max_triples},
        "confidence": {**_one_or_several(level, settings), "default": 0.9},
    }


def _one_or_several(number: dict[str, Any], settings: Settings) -> dict[str, Any]:
    several = {"type": "array", "items": number, "minItems": 1, "maxItems": settings.max_levels}
    return {"anyOf": [number, several]}


def _body(
    title: str, fields: dict[str, Any], required: list[str], example: dict[str, Any], **more: Any
) -> dict[str, Any]:
    schema = {
        "type": "object",
        "title": title,
        "properties": fields,
        "required": required,
        "additionalProperties": False,
        "examples": [example],
        **more,
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a path."""
    words = {
        400: "The request cannot be read.",
        404: "There is no such thing.",
        408: "The body took too long to arrive.",
        413: "The request is too large.",
        415: "The body is not JSON.",
        422: "A value is not what it should be.",
        429: "Too much is waiting; try again.",
        503: "No answer in time; try again later.",
    }
    return {status: {"model": Error, "description": words[status]} for status in statuses}
