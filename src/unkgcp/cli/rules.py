"""`unkgcp rules`: turn rules into unseen facts with a lower bound, for training."""

from __future__ import annotations

from typing import Any

import click

from unkgcp.cli.options import (
    reading_and_settings,
    seed_option,
    share_option,
    splitting_options,
)
from unkgcp.cli.output import Reporter, json_option, print_json, print_text

EPILOG = """\b
A rule file has one rule a line; # starts a comment:
  # competitors of competitors compete, to the degree 0.9
  0.9: concept:competeswith(A, B) & concept:competeswith(B, C) & A != C -> concept:competeswith(A, C)
  'is part of'(A, B) -> 'has part'(B, A)

\b
Examples:
  unkgcp rules nl27k my.rules -o softlogic.tsv
  unkgcp rules facts.tsv my.rules -o softlogic.tsv --min-confidence 0.5
"""


@click.command(epilog=EPILOG)
@click.argument("data")
@click.argument("rules", metavar="RULES")
@click.option(
    "-o", "--output", required=True, metavar="FILE", help="Where the facts go, such as softlogic.tsv."
)
@share_option("--min-confidence", 0.3, "Leave out bounds below this.")
@seed_option("Of the split of one file; as for `fit`.")
@json_option
@reading_and_settings({"rounds": int})
@splitting_options
def command(
    data: str,
    rules: str,
    output: str,
    min_confidence: float,
    seed: int,
    config: dict[str, Any],
    reading: dict[str, Any],
    splitting: dict[str, Any],
) -> None:
    """Ground the rules in the file RULES over the training facts of DATA.

    Writes facts that are not among the training facts of DATA, each with a lower bound on its confidence: the
    Lukasiewicz truth of the rule's body and the rule's weight, for its best grounding. Put as softlogic.tsv into a
    data folder they take part in training. Facts of calibration and test are not used; a conclusion may happen to
    name the triple of one, as it may name that of a later query. In each round above the first, which the setting
    rounds asks for, the facts found so far take part in the rules.
    """
    from unkgcp.graph.datasets import load_dataset
    from unkgcp.graph.fact_files import write
    from unkgcp.rules import ground, read_rules
    from unkgcp.tabular.writer import check_output

    rounds = config.get("rounds", 1)
    check_output(output)
    statements = read_rules(rules)
    dataset = load_dataset(data, seed=seed, **reading, **splitting)
    splits = dataset.splits
    with Reporter("grounding", total=len(statements) * rounds) as progress:
        derived = ground(
            statements,
            splits.train,
            minimum=min_confidence,
            rounds=rounds,
            names=dataset.names.relations if dataset.names else None,
            progress=progress,
        )
    write(derived, output)
    print_json({"rules": len(statements), "facts": len(derived), "output": output})
    print_text(f"{len(derived):,} facts written to {output}")
