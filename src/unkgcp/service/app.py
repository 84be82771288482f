"""The web application: paths, their parameters, and how errors are said.

Each path reads its parameters, asks `Knowledge`, `Candidates` or the `Batcher`, and writes JSON; all numbers come from
`unkgcp.run`. There is no `from __future__ import annotations` here, because FastAPI reads the parameters of a path from
its annotations, and some of these are made from the run.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from importlib.resources import files
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.run.predictor import Predictor
from unkgcp.service import api_schema
from unkgcp.service.batching import Batcher
from unkgcp.service.knowledge import Candidates, Knowledge
from unkgcp.service.limits import Jobs, Metrics, Problem, Settings, Threads, quoted
from unkgcp.service.requests import (
    DEFAULT_LEVEL,
    Bodies,
    Middleware,
    parse_answers,
    parse_intervals,
    parse_selection,
    to_text,
)

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# the files of the explorer page by their paths
FILES = {
    "/" if file.name == "index.html" else f"/{file.name}": file
    for file in sorted((files("unkgcp.service") / "page").iterdir(), key=lambda file: file.name)
    if file.name.rpartition(".")[2] in TYPES
}


class Page:
    """One file of the explorer page as an endpoint, held in memory. A browser asks again only for what has changed."""

    def __init__(self, path: str) -> None:
        self._type = TYPES[FILES[path].name.rpartition(".")[2]]
        self._content = FILES[path].read_bytes()
        self._headers = {
            "ETag": f'"{sha256(self._content).hexdigest()[:32]}"',
            "Cache-Control": "no-cache",
        }

    async def respond(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self._headers["ETag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers, media_type=self._type)


Router = FastAPI | APIRouter
LONGEST_LABEL = 4096
QUICK_BODY = 1 << 15  # bytes of a body that are parsed in well under a millisecond
DEFAULT_LEVELS = [DEFAULT_LEVEL]
OPEN = (*FILES, "/health", "/openapi.json")

OF_BODIES = api_schema.problems(400, 408, 413, 415, 422, 429, 503)
OF_QUESTIONS = api_schema.problems(404, 422, 429, 503)


def _label(text: str) -> Any:
    return Query(max_length=LONGEST_LABEL, description=text)


Head = Annotated[str, _label("The head.")]
Relation = Annotated[str, _label("The relation.")]
Tail = Annotated[str, _label("The tail.")]
Level = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Prefix = Annotated[str, _label("What the labels begin with; any case.")]
Limit = Annotated[int, Query(ge=1, le=100, description="How many labels at most.")]
Anywhere = Annotated[
    Literal["false", "true"], Query(description="Whether labels that hold the text further on follow.")
]
Few = Annotated[int, Query(ge=1, le=50, description="How many facts of each group at most.")]


class Served:
    """One run, and the threads that answer for it; `bodies` and `reading` are those of all runs."""

    def __init__(
        self, predictor: Predictor, settings: Settings, metrics: Metrics, bodies: Bodies, reading: Threads
    ) -> None:
        self.settings, self.bodies, self.reading = settings, bodies, reading
        self.knowledge = Knowledge(predictor, settings)
        self.batcher = Batcher(predictor, settings, metrics)
        self.candidates = Candidates(predictor, self.batcher, settings)
        # completions may take long, so the quicker questions have a thread of their own
        self.completions, self.questions = Jobs(settings, 2, "completion"), Jobs(settings, 1, "question")
        self.reasons = Jobs(settings, 1, "reasons")  # leaving a fact out means grouping all others again
        # the first answer set has to be calibrated, and other questions shall not wait for that
        self.sets = Jobs(settings, 1, "answers")

    def close(self) -> None:
        for one in (self.batcher, self.candidates, self.completions, self.questions, self.reasons, self.sets):
            one.close()


def build(runs: Mapping[str, Predictor], settings: Settings) -> FastAPI:
    """The application over runs by their names. The first answers under /v1, and each under /runs/NAME/v1."""
    metrics = Metrics(__version__, {name: (run.model.called, run.method.name) for name, run in runs.items()})
    bodies, reading = Bodies(settings), Threads(1, "body")
    served = {name: Served(run, settings, metrics, bodies, reading) for name, run in runs.items()}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        for one in served.values():
            one.close()
        reading.close()

    app = FastAPI(
        title="UnKGCP",
        version=__version__,
        summary="Confidences of facts as intervals that hold with the probability you choose.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _handle_problems(app)
    app.state.metrics = metrics  # these two are for the server around the application
    app.state.batchers = {name: one.batcher for name, one in served.items()}
    _add_run(app, next(iter(served.values())))
    _add_upkeep(app, served, metrics)
    paths = [route.path for route in app.routes if hasattr(route, "path")]
    for name, one in served.items():
        router = APIRouter(prefix=f"/runs/{name}")
        _add_run(router, one)
        app.include_router(router, include_in_schema=False)
        paths += [route.path for route in router.routes if hasattr(route, "path")]
    document = app.openapi()  # made once, and not while somebody waits for another answer
    if settings.token is not None:
        _declare_token(document)
    app.add_middleware(Middleware, settings=settings, metrics=metrics, open_paths=OPEN, paths=paths)
    return app


def _add_run(app: Router, served: Served) -> None:
    """The paths of one run."""
    _add_triples(app, served)
    _add_completions(app, served)
    _add_questions(app, served)


def _json(text: bytes) -> Response:
    return Response(text, media_type="application/json")


async def _answer(jobs: Jobs, work: Callable[[], Any], seconds: float = 0.0) -> Response:
    """The JSON of what `work` gives, made in one of the threads; `seconds` as in `Jobs.run`."""
    return _json(await jobs.run(lambda: to_text(work()), seconds))


def _add_triples(app: Router, served: Served) -> None:
    settings, reading = served.settings, served.reading

    @app.post(
        "/v1/intervals",
        response_model=api_schema.Intervals,
        responses=OF_BODIES,
        openapi_extra=api_schema.intervals_request(settings),
        summary="Score and interval of each triple",
    )
    async def intervals(request: Request) -> Response:
        data = await served.bodies.read(request)
        if len(data) <= QUICK_BODY:
            asked = parse_intervals(data, settings)
        else:
            asked = await reading.run(partial(parse_intervals, data, settings))
        return _json(await served.batcher.answer(asked))

    @app.post(
        "/v1/select",
        response_model=api_schema.Selection,
        responses=OF_BODIES,
        openapi_extra=api_schema.selection_request(settings),
        summary="Candidates that fulfil a condition, with few wrong ones among the selected",
    )
    async def select(request: Request) -> Response:
        data = await served.bodies.read(request)
        return _json(
            await served.candidates.select(await reading.run(partial(parse_selection, data, settings)))
        )


def _add_completions(app: Router, served: Served) -> None:
    knowledge, settings = served.knowledge, served.settings

    @app.get(
        "/v1/complete",
        response_model=api_schema.Completions,
        responses=OF_QUESTIONS,
        summary="The best completions of (head, relation, ?) or (?, relation, tail)",
    )
    async def complete(
        relation: Relation,
        head: Annotated[str | None, _label("The head; then tails are looked for.")] = None,
        tail: Annotated[str | None, _label("The tail; then heads are looked for.")] = None,
        k: Annotated[int, Query(ge=1, le=settings.max_k, description="How many at most.")] = 10,
        rank_by: Annotated[Literal["score", "lower"], Query(description="What the best is.")] = "score",
        exclude_known: Annotated[
            Literal["false", "true"], Query(description="Whether training facts are left out.")
        ] = "false",
        confidence: Annotated[
            list[Level],
            Query(
                min_length=1,
                max_length=settings.max_levels,
                description="The level of the intervals; several where it is given several times.",
            ),
        ] = DEFAULT_LEVELS,
    ) -> Response:
        if (head is None) == (tail is None):
            raise Problem(422, "give either head or tail; the other is what is looked for")
        without = exclude_known == "true"
        options: dict[str, Any] = {"levels": confidence, "exclude_known": without, "k": k, "rank_by": rank_by}
        asked, cost = knowledge.asked_by_completion(k, rank_by), served.batcher.cost
        seconds = cost.seconds(asked, 1) + cost.seconds(k, len(confidence)) if cost.known else 0.0
        work = partial(knowledge.complete, head, relation, tail, **options)
        return await _answer(served.completions, work, seconds)

    @app.post(
        "/v1/answers",
        response_model=api_schema.AnswerSet,
        responses=api_schema.problems(400, 404, 408, 413, 415, 422, 429, 503),
        openapi_extra=api_schema.answers_request(settings),
        summary="Entities among which the answer of (head, relation, ?) or (?, relation, tail) is",
    )
    async def answers(request: Request) -> Response:
        asked = parse_answers(await served.bodies.read(request), settings)
        work = partial(knowledge.answers, asked.head, asked.relation, asked.tail, **asked.options)
        return await _answer(served.sets, work)


def _add_questions(app: Router, served: Served) -> None:
    knowledge, about = served.knowledge, to_text(served.knowledge.about())

    @app.get(
        "/v1/evidence",
        response_model=api_schema.Evidence,
        responses=OF_QUESTIONS,
        summary="The training facts around a triple",
    )
    async def evidence(head: Head, relation: Relation, tail: Tail, limit: Few = 5) -> Response:
        return await _answer(served.questions, partial(knowledge.evidence, head, relation, tail, limit))

    @app.get("/v1/about", response_model=api_schema.About, summary="What is being served")
    async def of_the_run() -> Response:
        return _json(about)

    for kind in ("entities", "relations"):
        _add_labels(app, served, kind)

    @app.get(
        "/v1/distribution",
        response_model=api_schema.Distribution,
        responses=OF_QUESTIONS,
        summary="What an evidence run believes of the confidence of a triple",
    )
    async def distribution(head: Head, relation: Relation, tail: Tail) -> Response:
        return await _answer(served.questions, partial(knowledge.distribution, head, relation, tail))

    @app.get(
        "/v1/without",
        response_model=api_schema.Without,
        responses=OF_QUESTIONS,
        summary="What an evidence run would answer without single training facts around a triple",
    )
    async def without(
        head: Head,
        relation: Relation,
        tail: Tail,
        confidence: Annotated[Level, Query(description="The level of the intervals.")] = DEFAULT_LEVEL,
    ) -> Response:
        return await _answer(served.reasons, partial(knowledge.without, head, relation, tail, confidence))


def _add_labels(app: Router, served: Served, kind: str) -> None:
    @app.get(
        f"/v1/{kind}",
        response_model=api_schema.Labels,
        responses=api_schema.problems(422, 429, 503),
        summary=f"Labels of {kind} by their first letters",
        operation_id=kind,
    )
    async def labels(prefix: Prefix = "", limit: Limit = 20, anywhere: Anywhere = "false") -> Response:
        work = partial(served.knowledge.labels, kind, prefix, limit, anywhere == "true")
        # first letters are found at once; a search within all labels may take a while
        return _json(to_text(work())) if anywhere == "false" else await _answer(served.questions, work)


def _add_upkeep(app: FastAPI, served: Mapping[str, Served], metrics: Metrics) -> None:
    told = {name: one.knowledge.about() for name, one in served.items()}
    of_a_run = ("data", "model", "method")
    runs = to_text(
        {"runs": [{"name": name, **{key: about[key] for key in of_a_run}} for name, about in told.items()]}
    )

    @app.get("/v1/runs", response_model=api_schema.Runs, summary="The runs that are being served")
    async def of_all_runs() -> Response:
        return _json(runs)

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=api_schema.Health, summary="Whether the service answers")
    async def health() -> Response:
        return _json(b'{"status":"ok"}')

    @app.get(
        "/metrics",
        summary="Counters for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def counters() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    for path in FILES:
        app.add_route(path, Page(path).respond, methods=["GET"], include_in_schema=False)


def _declare_token(made: dict[str, Any]) -> None:
    """The OpenAPI document says which paths need the token, and that they answer 401 without it."""
    made.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path, operations in made["paths"].items():
        if path in OPEN:
            continue
        for operation in operations.values():
            operation["security"] = [{"token": []}]
            operation["responses"]["401"] = {
                "description": "The token is missing or wrong.",
                "content": error,
            }


def _handle_problems(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(InputError)
    async def unusable(request: Request, error: InputError) -> Response:
        return Problem(422, str(error)).response()

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        name, why = str(first["loc"][1]), str(first["msg"])
        if first["type"] == "missing":
            return Problem(422, f"the parameter {name} is missing").response()
        return Problem(422, f"the parameter {name} is wrong: {why[:1].lower()}{why[1:]}").response()

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        path = quoted(request.url.path)
        sentence = {
            404: f"there is nothing at {path}; /openapi.json lists what there is",
            405: f"{request.method} is not possible at {path}",
        }.get(error.status_code, str(error.detail))
        return Problem(error.status_code, sentence, error.headers).response()
