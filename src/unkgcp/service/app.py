"""The web application: runs that can be loaded again, paths, their parameters, and how errors are said.

Each path takes the run that is asked once, when the request comes, so that a reload never mixes two runs in an answer.
There is no `from __future__ import annotations` here, because FastAPI reads the parameters of a path from annotations.
"""

import asyncio
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.resources import files
from threading import Lock
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.run.predictor import Predictor
from unkgcp.service.gate import LOG, Gate, Metrics, access_log
from unkgcp.service.schema import (
    DEFAULT_LEVEL,
    MAX_K,
    MAX_LEVELS,
    AboutDocument,
    AnswersRequest,
    CompletionColumns,
    DistributionDocument,
    EffectsDocument,
    EvidenceDocument,
    IntervalColumns,
    IntervalsRequest,
    Label,
    LabelList,
    SelectionColumns,
    SelectRequest,
    SetDocument,
    Share,
    problems,
    quoted,
    sentences,
)
from unkgcp.service.served_run import ServedRun, json_of
from unkgcp.service.settings import Settings

TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# the files of the explorer page by their paths
FILES = {
    "/" if file.name == "index.html" else f"/{file.name}": file
    for file in sorted((files("unkgcp.service") / "page").iterdir(), key=lambda file: file.name)
    if file.name.rpartition(".")[2] in TYPES
}
OPEN = (*FILES, "/health", "/ready", "/openapi.json")


class ServedRuns:
    """The runs by their names; the first answers where none is named. `reload` swaps all of them at once."""

    def __init__(self, predictors: Mapping[str, Predictor], settings: Settings) -> None:
        self.settings, self.metrics = settings, Metrics()
        self._reloading = Lock()
        self.by_name = self._served(predictors)

    def __getitem__(self, name: str | None) -> ServedRun:
        if name is None:
            return next(iter(self.by_name.values()))
        if name not in self.by_name:
            raise HTTPException(404, f"no run called {quoted(name)} is served here; see /v1/runs")
        return self.by_name[name]

    def reload(self) -> list[str]:
        """Load every run again beside the old ones and swap; where one cannot be loaded, the old ones stay.

        InputError says why. The old ones finish what they have begun, and go when nobody asks them any more.
        """
        with self._reloading:
            try:
                served = self._served({name: _again(one.predictor) for name, one in self.by_name.items()})
            except Exception as error:
                self.metrics.reloads.labels("failed").inc()
                why = " ".join(str(error).split()) or type(error).__name__
                LOG.error("reload failed, the runs before still answer: %s", why)
                raise InputError(f"nothing was reloaded, and what was served still is: {why}") from error
            self.by_name = served
            self.metrics.reloads.labels("done").inc()
            LOG.warning("reloaded %s", ", ".join(served))
            return list(served)

    def _served(self, predictors: Mapping[str, Predictor]) -> dict[str, ServedRun]:
        return {name: ServedRun(name, one, self.settings, self.metrics) for name, one in predictors.items()}


def _again(predictor: Predictor) -> Predictor:
    if predictor.folder is None:
        raise InputError("this service was given a predictor, and not the folder of a run")
    return Predictor.load(predictor.folder)


def create_app(predictor: Predictor | Mapping[str, Predictor], settings: Settings | None = None) -> FastAPI:
    """The web application over one predictor, or over several by their names.

    The first answers under /v1, and each under /runs/NAME/v1.
    """
    settings = settings or Settings()
    predictors = predictor if isinstance(predictor, Mapping) else {"run": predictor}
    app = FastAPI(
        title="UnKGCP",
        version=__version__,
        summary="Confidences of facts as intervals that hold with the probability you choose.",
        docs_url=None,
        redoc_url=None,
        exception_handlers=HANDLERS,
    )
    app.state.runs = runs = ServedRuns(predictors, settings)
    bearer = {"dependencies": [Depends(HTTPBearer(auto_error=False))], "responses": problems(401)}
    token: dict[str, Any] = {} if settings.token is None else bearer
    app.include_router(OF_A_RUN, **token)
    app.include_router(OF_A_RUN, prefix="/runs/{run}", include_in_schema=False, **token)
    app.include_router(UPKEEP, **token)
    app.include_router(PROBES)
    for path, file in FILES.items():
        app.add_route(path, _page(file), methods=["GET"], include_in_schema=False)
    log = access_log(settings.access_log)
    app.add_middleware(Gate, settings=settings, metrics=runs.metrics, access_log=log, open_paths=OPEN)
    if settings.cors_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origin,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After"],
        )
    return app


# Paths of a run.


async def _run(request: Request) -> ServedRun:
    run: ServedRun = request.app.state.runs[request.path_params.get("run")]
    return run


OF_A_RUN = APIRouter()
Run = Annotated[ServedRun, Depends(_run)]
Head = Annotated[Label, Query(description="The head.")]
Relation = Annotated[Label, Query(description="The relation.")]
Tail = Annotated[Label, Query(description="The tail.")]
Flag = Literal["false", "true"]
SENT, LOOKED_UP = problems(400, 408, 413, 422, 503), problems(404, 422, 503)


def _check_size(request: Request, run: ServedRun, triples: list[list[str]], remedy: str) -> None:
    request.state.triples, limit = len(triples), run.settings.max_triples
    if len(triples) > limit:
        raise HTTPException(422, f"{len(triples):,} triples are more than {limit:,}; {remedy}")


@OF_A_RUN.post(
    "/v1/intervals",
    response_model=IntervalColumns,
    responses=SENT,
    summary="Score and interval of each triple",
)
async def intervals(body: IntervalsRequest, request: Request) -> Response:
    run = await _run(request)
    _check_size(request, run, body.triples, "send several requests")
    columns = await run.intervals(body.triples, body.confidence)
    return json_of({"confidence": body.confidence, **columns, "notes": run.notes(body.confidence)})


@OF_A_RUN.post(
    "/v1/select",
    response_model=SelectionColumns,
    responses=SENT,
    summary="Candidates that fulfil a condition, with few wrong ones among the selected",
)
async def select(body: SelectRequest, request: Request, run: Run) -> Response:
    # several requests are no remedy here, since the choice depends on all candidates together
    remedy = "choose among them in one file with unkgcp predict --select"
    _check_size(request, run, body.triples, remedy)
    return await run.ask(run.select, body)


@OF_A_RUN.get(
    "/v1/complete",
    response_model=CompletionColumns,
    responses=LOOKED_UP,
    summary="The best completions of (head, relation, ?) or (?, relation, tail)",
)
async def complete(
    run: Run,
    relation: Relation,
    head: Annotated[Label | None, Query(description="The head; then tails are looked for.")] = None,
    tail: Annotated[Label | None, Query(description="The tail; then heads are looked for.")] = None,
    k: Annotated[int, Query(ge=1, le=MAX_K, description="How many at most.")] = 10,
    rank_by: Annotated[Literal["score", "lower"], Query(description="What the best is.")] = "score",
    exclude_known: Annotated[Flag, Query(description="Whether known facts are left out.")] = "false",
    confidence: Annotated[
        list[Share],
        Query(min_length=1, max_length=MAX_LEVELS, description="The level; several where given again."),
    ] = [DEFAULT_LEVEL],  # noqa: B006
) -> Response:
    options: dict[str, Any] = {"k": k, "rank_by": rank_by, "exclude_known": exclude_known == "true"}
    options["confidence"] = confidence[0] if len(confidence) == 1 else confidence
    return await run.ask(run.complete, head, relation, tail, **options)


@OF_A_RUN.post(
    "/v1/answers",
    response_model=SetDocument,
    responses=SENT,
    summary="Entities among which the answer of (head, relation, ?) or (?, relation, tail) is",
)
async def answers(body: AnswersRequest, run: Run) -> Response:
    return await run.ask(run.answers, body)


@OF_A_RUN.get(
    "/v1/evidence",
    response_model=EvidenceDocument,
    responses=LOOKED_UP,
    summary="The training facts around a triple",
)
async def evidence(
    run: Run,
    head: Head,
    relation: Relation,
    tail: Tail,
    limit: Annotated[int, Query(ge=1, le=50, description="How many facts of each group at most.")] = 5,
) -> Response:
    return await run.ask(run.evidence, head, relation, tail, limit)


@OF_A_RUN.get(
    "/v1/distribution",
    response_model=DistributionDocument,
    responses=LOOKED_UP,
    summary="What an evidence run believes of the confidence of a triple",
)
async def distribution(run: Run, head: Head, relation: Relation, tail: Tail) -> Response:
    return await run.ask(run.distribution, head, relation, tail)


@OF_A_RUN.get(
    "/v1/without",
    response_model=EffectsDocument,
    responses=LOOKED_UP,
    summary="What an evidence run would answer without single training facts around a triple",
)
async def without(
    run: Run,
    head: Head,
    relation: Relation,
    tail: Tail,
    confidence: Annotated[Share, Query(description="The level of the intervals.")] = DEFAULT_LEVEL,
) -> Response:
    return await run.ask(run.effects, head, relation, tail, confidence)


@OF_A_RUN.get(
    "/v1/entities",
    response_model=LabelList,
    responses=problems(422, 503),
    summary="Labels of entities by their first letters",
)
@OF_A_RUN.get(
    "/v1/relations",
    response_model=LabelList,
    responses=problems(422, 503),
    summary="Labels of relations by their first letters",
)
async def labels(
    request: Request,
    run: Run,
    prefix: Annotated[Label, Query(description="What the labels begin with; any case.")] = "",
    limit: Annotated[int, Query(ge=1, le=100, description="How many labels at most.")] = 20,
    anywhere: Annotated[Flag, Query(description="Whether those follow that hold it further on.")] = "false",
) -> Response:
    kind = request.url.path.rpartition("/")[2]
    return await run.ask(run.labels, kind, prefix, limit, anywhere == "true")


@OF_A_RUN.get("/v1/about", response_model=AboutDocument, summary="What is being served")
async def about(run: Run) -> Response:
    return json_of(run.about)


# Paths for operators.

UPKEEP, PROBES = APIRouter(), APIRouter()


@UPKEEP.get(
    "/v1/runs",
    response_model=dict[str, list[dict[str, str | None]]],
    summary="Name, data, model and method of the runs; the first is the one that answers under /v1",
)
async def all_runs(request: Request) -> Response:
    abouts = {name: one.about for name, one in request.app.state.runs.by_name.items()}
    names = ("data", "model", "method")
    return json_of(
        {"runs": [{"name": name, **{key: one[key] for key in names}} for name, one in abouts.items()]}
    )


@UPKEEP.post(
    "/v1/reload",
    response_model=dict[str, list[str]],
    responses=problems(403, 409),
    summary="Load the runs again, verify them and swap",
)
async def reload(request: Request) -> Response:
    if request.app.state.runs.settings.token is None:
        raise HTTPException(403, "a reload over HTTP needs a service with a token; send it SIGHUP instead")
    try:
        return json_of({"reloaded": await asyncio.to_thread(request.app.state.runs.reload)})
    except InputError as error:
        raise HTTPException(409, str(error)) from None


@UPKEEP.get(
    "/metrics",
    summary="Counters for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    return Response(generate_latest(request.app.state.runs.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@PROBES.head("/health", include_in_schema=False)
@PROBES.head("/ready", include_in_schema=False)
@PROBES.get("/health", response_model=dict[str, Literal["ok"]], summary="Whether the service runs")
@PROBES.get(
    "/ready", response_model=dict[str, Literal["ok"]], summary="Whether the service answers questions"
)
async def probe() -> Response:
    return json_of({"status": "ok"})  # it listens before its runs are loaded, and answers when they are


def _page(file: Any) -> Callable[[Request], Response]:
    """One file of the explorer page, held in memory. A browser asks again only for what has changed."""
    content, media_type = file.read_bytes(), TYPES[file.name.rpartition(".")[2]]
    headers = {"ETag": f'"{sha256(content).hexdigest()[:32]}"', "Cache-Control": "no-cache"}

    def respond(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return respond


# Errors.


async def _unusable(request: Request, error: Any) -> Response:
    invalid = isinstance(error, RequestValidationError)
    return JSONResponse({"detail": sentences(error.errors()) if invalid else str(error)}, 422)


async def _refused(request: Request, error: Any) -> Response:
    path, sentence = quoted(request.url.path), str(error.detail)
    if sentence == "Not Found":
        sentence = f"there is nothing at {path}; /openapi.json lists what there is"
    elif error.status_code == 400:
        sentence = "the body cannot be read; send JSON in UTF-8"
    elif error.status_code == 405:
        sentence = f"{request.method} is not possible at {path}"
    return JSONResponse({"detail": sentence}, error.status_code, error.headers)


HANDLERS: dict[Any, Any] = {
    InputError: _unusable,
    RequestValidationError: _unusable,
    HTTPException: _refused,
}
