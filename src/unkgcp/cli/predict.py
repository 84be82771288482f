"""`unkgcp predict`: score and interval for every triple of a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any

import click

from unkgcp.cli.options import (
    choice_option,
    columns_option,
    confidence_option,
    config_option,
    examples,
    share_option,
)
from unkgcp.cli.output import Reporter, is_terminal, note
from unkgcp.progress import Silent

if TYPE_CHECKING:
    from unkgcp.predict.stream import PredictRequest
    from unkgcp.run.predictor import Predictor

READING = {"header": bool, "prefixes": dict}
RAY = {"workers": int, "address": str, "rows_per_part": int}
"""Settings of `--config`: of reading, and of a Ray cluster."""


@click.command(
    name="predict",
    epilog=examples(
        "unkgcp predict run queries.tsv -o answers.tsv",
        "unkgcp predict run queries.parquet -o answers.parquet --confidence 0.8,0.9",
        "cut -f1-3 facts.tsv | unkgcp predict run - | head",
        "unkgcp predict run queries.tsv --filter 'lower >= 0.7' -o good.tsv",
        "unkgcp predict run candidates.tsv --select 'confidence >= 0.7' --fdr 0.1 -o chosen.tsv",
        "printf 'TP53\\tbinding\\t?\\n' | unkgcp predict run - --top-k 10 --rank-by lower --exclude-known",
        "unkgcp predict run questions.tsv --answers --confidence 0.9 -o sets.tsv",
        "unkgcp predict run queries/ -o answers/ --engine ray",
    ),
)
@click.argument("run")
@click.argument("queries", metavar="INPUT")
@click.option("-o", "--output", metavar="OUT", help="A .tsv or .csv (each perhaps .gz) or .parquet file.")
@confidence_option(
    "0.9", "The probability that an interval holds the true confidence; several give more columns."
)
@choice_option(
    "--engine", ["local", "ray"], "Where to compute: here in one process, or in workers on a Ray cluster."
)
@click.option(
    "--top-k",
    type=click.IntRange(min=1),
    metavar="K",
    help="Complete queries with an open head or tail, ? or empty: the best K entities for each.",
)
@click.option(
    "--answers",
    is_flag=True,
    help="For queries with an open head or tail a set of entities that contains that of a new fact with the "
    "probability --confidence; --top-k lists only the best of each set.",
)
@share_option("--min-confidence", 0.0, "With --answers: promise it for new facts from this confidence on.")
@choice_option(
    "--rank-by",
    ["score", "lower"],
    "What makes a completion good: its score, or the lower end of its interval.",
)
@click.option(
    "--exclude-known",
    is_flag=True,
    help="Leave out completions that are facts of the data RUN was fitted on.",
)
@click.option("--exclude", metavar="FILE", help="Leave out completions that are triples of this file, too.")
@click.option(
    "--filter",
    "condition",
    metavar="CONDITION",
    help="Keep only answers for which it holds: comparisons of score, lower, upper, width or status, of evidence runs "
    "value, belief, other or other_belief too, joined by and, or and parentheses. Intervals hold on average over all "
    "queries, not over those that are kept.",
)
@click.option(
    "--select",
    "selected",
    metavar="CONDITION",
    help="Choose the triples whose confidence fulfils it ('confidence >= 0.7', '0.3 <= confidence < 0.7') so that the "
    "expected share of wrong ones among the chosen is at most --fdr: adds the columns p_value and selected.",
)
@click.option(
    "--fdr",
    metavar="SHARES",
    default="0.1",
    show_default=True,
    help="With --select: the allowed share of wrong ones; several, separated by commas, give more columns.",
)
@click.option(
    "--after-selection",
    is_flag=True,
    help="Write only what --select or --filter chooses, with intervals that hold for what is chosen.",
)
@click.option(
    "--keep-columns/--drop-columns",
    "carries",
    default=True,
    help="Whether the other columns of a TSV, CSV or Parquet file follow the answers (default).",
)
@click.option("--format", metavar="NAME", help="How INPUT is laid out, if its name does not tell.")
@columns_option("H,R,T", "Columns of head, relation and tail, by name or by position from 0.")
@config_option({**READING, **RAY})
def command(
    run: str,
    queries: str,
    output: str | None,
    confidence: list[float],
    engine: str,
    carries: bool,
    format: str | None,
    columns: list[int | str] | None,
    config: dict[str, Any],
    **wishes: Any,
) -> None:
    """Score and interval for every triple of INPUT (TSV, CSV or Parquet; - is standard input).

    The answers have the columns head, relation, tail, score, lower, upper, status and kind, in the order of INPUT;
    for several levels lower_80, upper_80 and so on. A run with a promise per relation adds promise, one for the open
    world no_fact, fact_lower and fact_upper, one of the method evidence value, belief, other and other_belief: a value
    and its probability, and a second one where it is above 15 %. Without -o they go to standard output as TSV. A query
    whose entity or relation has no training fact gets a status that says so, and the whole range from 0 to 1 with no
    score unless the run was calibrated with such facts.
    With --top-k the columns query (the row of INPUT, from 0) and rank come first, presumes_fact says that an interval
    is one for a fact, which a completion need not be, and evidence runs add expected, by which they rank. With --select
    a p_value and whether the triple is selected come last (selected_5, selected_10 and so on for several shares of
    wrong ones). With --answers the columns are query, rank, head, relation, tail, share (of the likelihood of all
    candidates, as the run sees it), size (of the whole set), candidates, known (training facts that answer the query,
    which are not in the set), calibration (facts that the threshold stands on), status and promise. The other columns
    of INPUT come after these (input_score if one is called as a column of the answers). A file appears when all of it
    is written.
    """
    _refuse(wishes, confidence, engine, config)
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.provenance import prefixes
    from unkgcp.tabular.query_files import count_queries, query_batches
    from unkgcp.tabular.writer import check_output

    request = _request(wishes, confidence)
    chosen = {"format": format, "columns": columns, **{name: config.get(name) for name in READING}}
    reading: dict[str, Any] = {name: value for name, value in chosen.items() if value is not None}
    if engine == "local":
        check_output(output)
    total = count_queries(queries)
    predictor = Predictor.load(run)
    if iris := prefixes(predictor.provenance.get("data", {})):
        reading = {"prefixes": iris, **reading}
    reading["carries"] = carries
    if request.completion is not None:
        from unkgcp.run.completion import excluded, presumption

        note(presumption(predictor))
        if wishes["exclude"] is not None:
            left_out = excluded(predictor, wishes["exclude_known"], query_batches(wishes["exclude"]))
            request = request._replace(completion={**request.completion, "exclude": left_out})
    for level in confidence if request.sets is None else ():
        note(predictor.method.caution(level))
    if engine == "ray":
        from unkgcp.predict.ray_engine import answer_on_ray

        ray = {name: config[name] for name in RAY if name in config}
        with Reporter("predicting", total) as progress:
            answer_on_ray(run, queries, output, request, progress=progress, **reading, **ray)
    else:
        _answer_here(predictor, queries, output, request, reading, total)


def _refuse(
    wishes: Mapping[str, Any], confidence: Sequence[float], engine: str, config: Mapping[str, Any]
) -> None:
    """UsageError for options that do not go together."""
    answers, selected, condition = wishes["answers"], wishes["selected"], wishes["condition"]
    completes = wishes["top_k"] is not None and not answers
    of_completions = wishes["rank_by"] != "score" or wishes["exclude_known"] or wishes["exclude"]
    refusals = {
        "--answers ranks by itself and leaves training facts out: leave out --rank-by, --exclude-known, --exclude, "
        "--filter and --select": answers and (of_completions or condition or selected),
        "--answers takes one level; name one with --confidence": answers and len(confidence) > 1,
        "--min-confidence needs --answers, which asks for answer sets": wishes["min_confidence"]
        and not answers,
        "--rank-by, --exclude-known and --exclude need --top-k, which asks for completions": of_completions
        and not completes,
        "--exclude goes with --engine local; leave one of them out": wishes["exclude"] and engine == "ray",
        "--after-selection needs --select or --filter, which choose": wishes["after_selection"]
        and not (selected or condition),
        "--select chooses among all triples of INPUT: leave out --top-k and --filter": selected
        and (completes or condition),
        "--after-selection does not go with --top-k: most completions are no facts, for which nothing is "
        "promised": wishes["after_selection"] and completes,
        "workers, address and rows_per_part are settings for --engine ray; add that, or leave them out": engine
        != "ray"
        and any(name in config for name in RAY),
    }
    for sentence, is_wrong in refusals.items():
        if is_wrong:
            raise click.UsageError(sentence)


def _request(wishes: Mapping[str, Any], confidence: Sequence[float]) -> PredictRequest:
    """What is asked of every query; with --answers --top-k says how many of each set are listed."""
    from unkgcp.conformal.ranks import exact_levels
    from unkgcp.predict.filter import parse
    from unkgcp.predict.stream import PredictRequest
    from unkgcp.run.answer_sets import SetRequest
    from unkgcp.run.chooser import Choice

    k, after = wishes["top_k"], wishes["after_selection"]
    condition, selected = wishes["condition"], wishes["selected"]
    best = None if k is None else {"k": k, **{name: wishes[name] for name in ("rank_by", "exclude_known")}}
    return PredictRequest(
        exact_levels(confidence[0] if len(confidence) == 1 else confidence),
        completion=None if wishes["answers"] else best,
        sets=SetRequest.of(confidence[0], k, wishes["min_confidence"]) if wishes["answers"] else None,
        keep=None if condition is None else parse(condition, confidence),
        after=after,
        choice=None if selected is None else Choice.of(selected, wishes["fdr"].split(","), after),
    )


def _answer_here(
    predictor: Predictor,
    queries: str,
    output: str | None,
    request: PredictRequest,
    reading: dict[str, Any],
    total: int | None,
) -> None:
    """Answer a file in this process."""
    from unkgcp.conformal.ranks import exact_levels
    from unkgcp.predict.filter import after_filter
    from unkgcp.predict.stream import answer_file, chosen_in_file

    levels, answer = exact_levels(request.confidence), None
    with ExitStack() as stack:
        if request.choice is not None:
            with Reporter("choosing", total) as progress:
                chosen = stack.enter_context(
                    chosen_in_file(predictor, queries, request.choice, progress=progress, **reading)
                )
            for sentence in (*chosen.chooser.cautions(chosen.cuts, levels), chosen.sentence):
                note(sentence)
            queries, reading, answer = chosen.queries, dict(chosen.reading), chosen.answering(levels)
            total = chosen.candidates
        elif request.keep is not None and request.after:
            predictor = after_filter(predictor, request.keep, levels)
            for level in levels.levels:
                if (caution := predictor.method.caution(level)) is not None:
                    note(f"of the calibration facts that the filter keeps: {caution}")
        # a bar would be drawn into answers that come on the same screen
        on_screen = output in (None, "-") and is_terminal(sys.stdout)
        with nullcontext(Silent()) if on_screen else Reporter("predicting", total) as progress:
            answer_file(predictor, queries, output, request, answer=answer, progress=progress, **reading)
        if request.sets is not None:
            sets = predictor.answer_sets(request.sets.least, request.sets.per)
            for sentence in sets.notes(request.sets.level):
                note(sentence)
