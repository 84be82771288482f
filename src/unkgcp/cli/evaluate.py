"""`unkgcp evaluate`: how good the intervals of a run are on test facts."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.options import confidence_option, examples, reading_options, share_option
from unkgcp.cli.output import Reporter, json_option, print_evaluation, print_json, print_text


@click.command(
    name="evaluate",
    epilog=examples(
        "unkgcp evaluate run",
        "unkgcp evaluate run --json | jq '.levels[].positive.coverage'",
        "unkgcp evaluate run --data ppi5k --confidence 0.5,0.9,0.99",
        "unkgcp evaluate run --full --confidence 0.9",
        "unkgcp evaluate run --ranking --min-confidence 0.7",
        "unkgcp evaluate run --answers --confidence 0.8,0.9,0.95",
    ),
)
@click.argument("run")
@click.option("--data", metavar="DATA", help="Take the test facts of this data set instead of the run's own.")
@confidence_option("0.8,0.85,0.9,0.95", "The levels to evaluate.")
@click.option(
    "--full", is_flag=True, help="Every figure, by kind of question and level, each explained in a line."
)
@click.option(
    "--ranking",
    is_flag=True,
    help="Also how well it ranks: nDCG, and mean reciprocal rank and hits, plain and weighted by confidence.",
)
@click.option(
    "--answers",
    is_flag=True,
    help="Also how often answer sets contain the tails and heads of new test facts, how large they are, and coverage "
    "by relation with one threshold for all and with one a relation.",
)
@share_option(
    "--min-confidence",
    0.0,
    "With --ranking or --answers: the confidence from which on a test fact is asked about.",
)
@json_option
@reading_options
def command(
    run: str,
    data: str | None,
    confidence: list[float],
    full: bool,
    ranking: bool,
    answers: bool,
    min_confidence: float,
    reading: dict[str, Any],
) -> None:
    """How good the intervals of RUN are on test facts: coverage, width and interval score, by kind of question.

    The test facts are those of the data the run was fitted on, which are looked for where they were.
    """
    from unkgcp.conformal.ranks import exact_levels
    from unkgcp.evaluation import evaluation_texts
    from unkgcp.evaluation.assessment import ask, judge
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.provenance import load_named

    predictor = Predictor.load(run)
    dataset = load_named(data, predictor.provenance.get("data", {}), run, predictor.model.seed, reading)
    if answers:
        from unkgcp.run.answer_sets import answer_level

        for level in confidence:  # said before anything takes long
            answer_level(level)
    with Reporter("evaluating", 100) as progress:
        judged = ask(predictor, dataset, exact_levels(confidence), progress)
        result = judge(judged, progress)
    texts = [evaluation_texts.full_text(result)] if full else []
    if ranking:
        from unkgcp.evaluation.completion_quality import ranking as rank_facts

        splits = judged.dataset.splits
        known = [splits.train, splits.validation, splits.calibration]
        result["ranking"] = rank_facts(predictor, splits.test, known, min_confidence)
        texts.append(evaluation_texts.ranking_text(result["ranking"]))
    if answers:
        from unkgcp.evaluation.completion_quality import judge_answers

        result["answers"] = judge_answers(predictor, judged.dataset.splits.test, confidence, min_confidence)
        texts.append(evaluation_texts.answers_text(result["answers"]))
    print_json(result)
    print_evaluation(result)
    print_text("\n" + "\n\n".join(texts) if texts else f"Every figure: --full. A page: unkgcp report {run}")
