"""Full inference with the engine of probabilistic soft logic (`pslpython`, which needs Java).

It finds the most probable truth of all unseen facts at once: the values that minimise

    sum over groundings of max(0, body + w - 1 - head)  +  prior * sum over unseen facts of their truth

`body + w - 1` is the same Lukasiewicz bound as in `unkgcp.rules.grounding`; the small prior says that nothing is true
without a reason. Where rules and stated facts agree, the result is that of grounding to the end
(`ground(..., rounds=None)`). Where they do not, say a derived fact would lift a *stated* one above its confidence, the
engine gives way on the cheaper side.

It is not fast: the engine is a Java program that takes every fact in and hands every answer out one by one.
Use it for rules that contradict the data; otherwise grounding gives the same numbers sooner.

>>> from unkgcp.rules.psl import infer                                                 # doctest: +SKIP
>>> softlogic = infer(rules, splits.train)  # doctest: +SKIP
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph
from unkgcp.progress import Progress
from unkgcp.rules.grounding import MINIMUM, ground, merge_repeats, relation_ids
from unkgcp.rules.language import Atom, Rule

if TYPE_CHECKING:
    from pslpython.model import Model

PRIOR = 0.01

DECIMALS = 4
"""Digits that the engine's answers are rounded to: it comes close to the optimum, but does not reach it."""

# By default the engine stops some 5e-4 away from the optimum. Facts that cannot reach the minimum bound are
# not among its targets: "pam.throw" tells it to pass over them.
OPTIONS: dict[str, Any] = {
    "admmreasoner.epsilonabs": 1e-8,
    "admmreasoner.epsilonrel": 1e-6,
    "pam.throw": False,
    "random.seed": 0,
    "runtime.log.level": "OFF",
}


def infer(
    rules: Sequence[Rule],
    facts: Graph,
    *,
    minimum: float = MINIMUM,
    rounds: int | None = 1,
    names: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Graph:
    """Unseen facts with their most probable truth as confidence, in order of their triples.

    The facts asked for are those that `ground` finds in so many `rounds`. Truths below `minimum` are left out. `names`
    and `progress` are as for `ground`.
    """
    if not available():
        raise InputError(
            "the psl engine needs pslpython and Java; run `pip install 'unkgcp[psl]'` and install Java"
        )
    # inference only lowers these bounds: facts below the minimum here would be below it there too
    targets = ground(rules, facts, minimum=minimum, rounds=rounds, names=names, progress=progress)
    if not len(targets):
        return targets
    truth = _solve(problem(rules, facts, targets, names), targets)
    truth = np.clip(np.round(truth, DECIMALS), 0.0, 1.0)
    return targets.with_confidence(truth)[(truth >= minimum) & (truth > 0)]


def available() -> bool:
    """Is the engine here: the package pslpython, and a Java machine for it?"""
    return find_spec("pslpython") is not None and bool(shutil.which("java") or os.environ.get("JAVA_HOME"))


def problem(rules: Sequence[Rule], facts: Graph, targets: Graph, names: Mapping[str, str] | None) -> Model:
    """The engine's model: facts as observations, `targets` as the facts whose truth is asked for.

    Relations and entities go in as numbers, so that no label needs quotes. The weight of rule i is the truth of the
    observed atom HOLDS(i) in its body.
    """
    from pslpython.model import Model
    from pslpython.predicate import Predicate
    from pslpython.rule import Rule as Statement

    number = Predicate.ArgType.UNIQUE_INT_ID
    named = relation_ids(rules, facts, names)
    stated = merge_repeats(facts)
    model = Model("unkgcp")
    for relation in sorted(set(named.values())):
        predicate = Predicate(_name(relation), arg_types=[number, number])
        predicate.add_observed_data(_rows(stated, relation, with_truth=True))
        predicate.add_target_data(_rows(targets, relation, with_truth=False))
        model.add_predicate(predicate)
        if (targets.relation == relation).any():
            model.add_rule(Statement(f"{PRIOR}: !{_name(relation)}(A, B)"))
    holds = Predicate("HOLDS", arg_types=[number])
    holds.add_observed_data([[i, rule.weight] for i, rule in enumerate(rules)])
    model.add_predicate(holds)
    for i, rule in enumerate(rules):
        model.add_rule(Statement(statement(rule, i, named)))
    return model


def statement(rule: Rule, number: int, named: dict[str, int]) -> str:
    """One rule in the engine's own language, with variables V0, V1, ..."""
    variables = {name: f"V{i}" for i, name in enumerate(sorted(rule.variables))}

    def atom(atom: Atom) -> str:
        return f"{_name(named[atom.relation])}({variables[atom.first]}, {variables[atom.second]})"

    terms = [atom(term) for term in rule.body]
    terms += [f"({variables[first]} != {variables[second]})" for first, second in rule.distinct]
    body = " & ".join([*terms, f"HOLDS('{number}')"])
    return f"1.0: {body} -> {atom(rule.head)}"


def _name(relation: int) -> str:
    return f"R{relation}"


def _rows(graph: Graph, relation: int, *, with_truth: bool) -> NDArray[np.object_]:
    """Head, tail and, if asked for, confidence: (n, 2) or (n, 3)."""
    part = graph[graph.relation == relation]
    # objects, because an array of floats would hand the ids to the engine as 1.0, 2.0, ...
    columns = [part.head.astype(object), part.tail.astype(object)]
    if with_truth:
        columns.append(part.confidence.astype(object))
    return np.column_stack(columns)


def _solve(model: Model, targets: Graph) -> NDArray[np.float64]:
    """The truth of every target, in the order of `targets`: (n,)."""
    try:
        answers = model.infer(psl_options=OPTIONS)
    except Exception as error:
        raise RuntimeError(
            f"the psl engine failed on {len(targets):,} unseen facts ({error}); "
            "raise the minimum bound or use the lukasiewicz engine"
        ) from error
    truth = np.zeros(len(targets))
    for predicate, frame in answers.items():
        relation = int(predicate.name()[1:])
        rows = np.flatnonzero(targets.relation == relation)
        wanted = targets.head[rows].astype(np.int64) * targets.n_entities + targets.tail[rows]
        given = frame[0].to_numpy(np.int64) * targets.n_entities + frame[1].to_numpy(np.int64)
        # targets are in order of their triples, hence `wanted` is ascending
        truth[rows[np.searchsorted(wanted, given)]] = frame["truth"].to_numpy(np.float64)
    return truth
