"""`unkgcp evaluate`: coverage, sharpness and error of a run on test facts."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.options import confidence_option, examples, reading_options, share_option
from unkgcp.cli.output import Reporter, json_option, print_json, print_text

EXAMPLES = examples(
    "unkgcp evaluate run",
    "unkgcp evaluate run --json | jq '.levels[].positive.coverage'",
    "unkgcp evaluate run --data ppi5k --confidence 0.5,0.9,0.99",
    "unkgcp evaluate run --per relation --confidence 0.9",
    "unkgcp evaluate run --ranking --threshold 0.85",
    "unkgcp evaluate run --ranking --min-confidence 0.7",
    "unkgcp evaluate run --answers --confidence 0.8,0.9,0.95",
)


@click.command(name="evaluate", epilog=EXAMPLES)
@click.argument("run")
@click.option("--data", metavar="DATA", help="Take the test facts of this data set instead of the run's own.")
@confidence_option("0.8,0.85,0.9,0.95", "The levels to evaluate.")
@click.option(
    "--per",
    type=click.Choice(["relation"]),
    help="Also coverage by relation, with one threshold for all facts and with one a relation.",
)
@click.option(
    "--ranking",
    is_flag=True,
    help="Also how well it ranks (nDCG, MRR and hits, plain, weighted and raw) and what keeping and dropping by the "
    "interval is worth.",
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
@share_option("--threshold", 0.7, "With --ranking: the confidence from which on a triple is worth keeping.")
@json_option
@reading_options
def command(
    run: str,
    data: str | None,
    confidence: list[float],
    per: str | None,
    ranking: bool,
    answers: bool,
    min_confidence: float,
    threshold: float,
    reading: dict[str, Any],
) -> None:
    """Coverage, sharpness and error of RUN on test facts: positives, negatives and both together.

    The test facts are those of the data the run was fitted on, which are looked for where they were.
    """
    from unkgcp.run.predictor import Predictor
    from unkgcp.run.provenance import load_named

    predictor = Predictor.load(run)
    from unkgcp.conformal.ranks import exact_levels

    exactly = exact_levels(confidence)
    record = predictor.provenance.get("data", {})
    dataset = load_named(data, record, run, predictor.model.seed, reading)
    if answers:
        from unkgcp.run.answer_sets import answer_level

        for level in confidence:  # said before anything takes long
            answer_level(level)
    with Reporter("evaluating", 100) as progress:
        from unkgcp.evaluation import evaluation_texts
        from unkgcp.evaluation.assessment import ask, judge

        found = ask(predictor, dataset, exactly, progress)
        result = judge(found, progress)
        texts = [evaluation_texts.evaluation_text(result)]
    if result.get("taken_in"):
        texts.append(
            f"{result['taken_in']:,} test facts were taken into the run by updates, and are left out"
        )
    if per is not None:
        from unkgcp.evaluation.by_relation import by_relation

        result["per_relation"] = by_relation(found)
        texts += ["\n" + evaluation_texts.relations_text(part) for part in result["per_relation"]]
    if ranking:
        from unkgcp.evaluation.assessment import decisions
        from unkgcp.evaluation.completion_quality import ranking as rank_facts

        splits = found.dataset.splits
        known = [splits.train, splits.validation, splits.calibration]
        result["ranking"] = rank_facts(predictor, splits.test, known, min_confidence)
        result["decisions"] = decisions(found, threshold)
        texts.append("\n" + evaluation_texts.ranking_text(result["ranking"]))
        texts.append("\n" + evaluation_texts.decisions_text(result["decisions"]))
    if answers:
        from unkgcp.evaluation.completion_quality import judge_answers

        result["answers"] = judge_answers(predictor, found.dataset.splits.test, confidence, min_confidence)
        texts.append("\n" + evaluation_texts.answers_text(result["answers"]))
    print_json(result)
    print_text("\n".join(texts))
