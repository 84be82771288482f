"""`unkgcp predict`: score and interval for every triple of a file."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from unkgcp.cli.options import (
    choice_option,
    columns_option,
    confidence_option,
    count_option,
    examples,
    prefix_option,
    ray_options,
    share_option,
)
from unkgcp.cli.output import Reporter, note

if TYPE_CHECKING:
    from unkgcp.run.answer_sets import Asked

EXAMPLES = examples(
    "unkgcp predict run queries.tsv -o answers.tsv",
    "unkgcp predict run queries.nt -o answers.ttl",
    "unkgcp predict run queries.parquet -o answers.parquet --confidence 0.8,0.9",
    "cut -f1-3 facts.tsv | unkgcp predict run - | head",
    "unkgcp predict run queries.tsv --filter 'lower >= 0.7' -o good.tsv",
    "unkgcp predict run candidates.tsv --select 'confidence >= 0.7' --fdr 0.1 -o chosen.tsv",
    "printf 'TP53\\tbinding\\t?\\n' | unkgcp predict run - --top-k 10 --rank-by lower --exclude-known",
    "unkgcp predict run questions.tsv --answers --confidence 0.9 -o sets.tsv",
    "unkgcp predict run queries/ -o answers/ --engine ray --workers 8",
)


@click.command(name="predict", epilog=EXAMPLES)
@click.argument("run")
@click.argument("queries", metavar="INPUT")
@click.option(
    "-o", "--output", metavar="OUT", help="A .tsv, .csv, .ttl or .nt (each perhaps .gz) or .parquet file."
)
@click.option(
    "--output-format",
    metavar="NAME",
    help="tsv, csv, parquet, turtle, ntriples, ntriples-star or neo4j; what the ending of OUT says if left out.",
)
@confidence_option(
    "0.9", "The probability that an interval holds the true confidence; several give more columns."
)
@choice_option(
    "--engine", ["local", "ray"], "Where to compute: here in one process, or in workers on a Ray cluster."
)
@count_option(
    "--top-k",
    None,
    "Complete queries with an open head or tail, ? or empty: the best K entities for each.",
    "K",
)
@click.option(
    "--answers",
    is_flag=True,
    help="For queries with an open head or tail a set of entities that contains that of a new fact with the "
    "probability --confidence; --top-k lists only the best of each set.",
)
@share_option("--min-confidence", 0.0, "With --answers: promise it for new facts from this confidence on.")
@choice_option(
    "--per",
    ["relation", "none"],
    "With --answers: promise it in every relation or group of small ones, or on average over all.",
)
@choice_option(
    "--rank-by",
    ["score", "lower"],
    "What makes a completion good: its score, or the lower end of its interval.",
)
@click.option("--exclude-known", is_flag=True, help="Leave training facts out of the completions.")
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
@ray_options
@click.option("--format", metavar="NAME", help="How INPUT is laid out, if its name does not tell.")
@columns_option("H,R,T", "Columns of head, relation and tail, by name or by position from 0.")
@click.option("--header/--no-header", default=None, help="Whether the first line of INPUT names the columns.")
@prefix_option
def command(
    run: str,
    queries: str,
    output: str | None,
    output_format: str | None,
    confidence: list[float],
    engine: str,
    top_k: int | None,
    answers: bool,
    min_confidence: float,
    per: str,
    rank_by: str,
    exclude_known: bool,
    condition: str | None,
    selected: str | None,
    fdr: str,
    after_selection: bool,
    ray: dict[str, Any],
    format: str | None,
    columns: list[int | str] | None,
    header: bool | None,
    prefixes: dict[str, str] | None,
) -> None:
    """Score and interval for every triple of INPUT (TSV, CSV or Parquet; - is standard input).

    The answers have the columns head, relation, tail, score, lower, upper and status, in the order of INPUT;
    for several levels lower_80, upper_80 and so on. A run with a promise per relation adds promise, one for the open
    world no_fact, fact_lower and fact_upper, one of the method evidence value, belief, other and other_belief: a value
    and its probability, and a second one where it is above 15 %. Without -o they go to standard output as TSV. A query
    whose entity or relation has no training fact gets the whole range from 0 to 1, no score, and a status that says so.
    With --top-k the columns query (the row of INPUT, from 0) and rank come first, presumes_fact says that an interval
    is one for a fact, which a completion need not be, and evidence runs add expected, by which they rank. With --select
    a p_value and whether the triple is selected come last (selected_5, selected_10 and so on for several shares of
    wrong ones). With --answers the columns are query, rank, head, relation, tail, share (of the likelihood of all
    candidates, as the run sees it), size (of the whole set), candidates, known (training facts that answer the query,
    which are not in the set), calibration (facts that the threshold stands on), status and promise. A file appears when
    all of it is written.
    """
    sets = _sets(answers, confidence, top_k, min_confidence, per)
    if answers and (rank_by != "score" or exclude_known or condition or selected):
        raise click.UsageError(
            "--answers ranks by itself and leaves training facts out: leave out --rank-by, --exclude-known, --filter "
            "and --select"
        )
    if answers:
        top_k = None  # it says how many of each set are listed, and asks for no completions
    if top_k is None and (exclude_known or rank_by != "score"):
        raise click.UsageError("--rank-by and --exclude-known need --top-k, which asks for completions")
    if after_selection and selected is None and condition is None:
        raise click.UsageError("--after-selection needs --select or --filter, which choose")
    if selected is not None and (top_k is not None or condition is not None):
        raise click.UsageError("--select chooses among all triples of INPUT: leave out --top-k and --filter")
    if after_selection and top_k is not None:
        raise click.UsageError(
            "--after-selection does not go with --top-k: most completions are no facts, for which nothing is promised"
        )
    given = {"format": format, "header": header, "columns": columns}
    reading: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if top_k is not None:
        reading["completion"] = {"k": top_k, "rank_by": rank_by, "exclude_known": exclude_known}
    keep = choice = None
    if condition is not None:
        from unkgcp.predict.filter import parse

        keep = parse(condition, confidence)
    if selected is not None:
        from unkgcp.run.chooser import Choice

        choice = Choice.of(selected, fdr.split(","), after_selection)
    from unkgcp.tabular.query_files import count_queries
    from unkgcp.tabular.writer import Style, check_output

    total = count_queries(queries)
    style = Style(format=output_format, prefixes=prefixes)
    if engine == "local":
        check_output(output, style)
    from unkgcp.run.predictor import Predictor

    predictor = Predictor.load(run)
    if prefixes is None:
        prefixes = predictor.provenance.get("data", {}).get("options", {}).get("prefixes")
        style = Style(format=output_format, prefixes=prefixes)
    if prefixes is not None:
        reading["prefixes"] = prefixes
    if top_k is not None:
        from unkgcp.run.completion import presumption

        note(presumption(predictor))
    from unkgcp.conformal.ranks import exact_levels

    levels = confidence[0] if len(confidence) == 1 else confidence
    exactly = exact_levels(levels)
    for level in exactly.levels if sets is None else ():
        note(predictor.method.caution(level))
    if engine == "ray":
        from unkgcp.predict.ray_engine import answer_on_ray

        with Reporter("predicting", total) as progress:
            reading |= {"condition": condition, "after": after_selection, "choice": choice, "sets": sets}
            answer_on_ray(run, queries, output, levels, progress=progress, style=style, **reading, **ray)
        return
    with ExitStack() as stack:
        if choice is not None:
            from unkgcp.predict.stream import chosen_in_file

            with Reporter("choosing", total) as progress:
                found = chosen_in_file(predictor, queries, choice, progress=progress, **reading)
                chosen = stack.enter_context(found)
            for told in chosen.chooser.cautions(chosen.cuts, exactly):
                note(told)
            queries, reading = chosen.queries, {**chosen.reading, "asked": chosen.answering(exactly)}
        elif keep is not None and after_selection:
            from unkgcp.predict.filter import after_filter

            predictor = after_filter(predictor, keep, confidence)
            for level in exactly.levels:
                if (caution := predictor.method.caution(level)) is not None:
                    note(f"of the calibration facts that the filter keeps: {caution}")
        with Reporter("predicting", total) as progress:
            from unkgcp.predict.stream import answer_file

            reading |= {"keep": keep, "sets": sets, "progress": progress}
            answer_file(predictor, queries, output, exactly, style=style, **reading)
        if sets is not None:
            for told in predictor.answer_sets(sets.least, sets.per).notes(sets.level):
                note(told)


def _sets(
    answers: bool, confidence: list[float], top_k: int | None, min_confidence: float, per: str
) -> Asked | None:
    """The request for answer sets, None if none are asked for."""
    if not answers:
        if min_confidence or per != "relation":
            raise click.UsageError("--min-confidence and --per need --answers, which asks for answer sets")
        return None
    if len(confidence) > 1:
        raise click.UsageError("--answers takes one level; name one with --confidence")
    from unkgcp.run.answer_sets import Asked

    return Asked.of(confidence[0], top_k, min_confidence, per)
