"""Which queries the promise speaks of: asserted facts, or whatever may be asked.

What it is: the step from a predictor calibrated on facts to one that also holds for triples that are no facts, with
corruptions of the calibration facts, of stated kinds and filtered with the training facts alone. What it is not: the
rule itself (`unkgcp.methods.open_world`).

>>> opened(calibrate(model, facts, "evidence"), facts)                     # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph import Graph
from unkgcp.graph.negatives import JOINED, KINDS, corrupt
from unkgcp.methods import IntervalPredictor, predictor_class
from unkgcp.methods.method import PerRelation, status_codes
from unkgcp.methods.open_world import (
    POPULATIONS,
    Likeness,
    OpenWorld,
    ScoreLikeness,
    check_share,
    open_world,
    restore_open_world,
)

if TYPE_CHECKING:
    from unkgcp.run.predictor import Predictor


def check_population(
    population: str, kinds: Sequence[str], share: float | None, method: str, per: str | None
) -> None:
    """InputError if there is no such population or kind of non-facts, or if the method cannot promise this."""
    kind_of_method = predictor_class(method)
    if per is not None and not issubclass(kind_of_method, PerRelation):
        raise InputError(
            f"method {method!r} has no promise per {per}; choose cp, unkgcp, shortest or evidence"
        )
    if population not in POPULATIONS:
        raise InputError(f"population is {population!r} but must be one of {', '.join(POPULATIONS)}")
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"there are no {kind!r} negatives; choose among {', '.join(KINDS)}")
    if share is not None and population != "open":
        raise InputError("a share of facts among the queries goes with --population open; add that")
    if share is not None:
        check_share(share, kind_of_method, per)


def opened(
    predictor: Predictor, facts: Graph, *, kinds: Sequence[str] = KINDS, share: float | None = None
) -> Predictor:
    """The predictor for queries that may be no facts; `facts` are its calibration facts, in the model's ids.

    With the evidence method, what tells facts from others is learned from the training facts. Kinds that there are none
    of in this graph (`relation` where there is but one) are left out.
    """
    model = predictor.model
    if model.facts is None:
        raise InputError(
            "the run does not hold its training facts, which non-facts are filtered with; fit it again"
        )
    train = model.facts.graph(model.vocabulary)
    known = facts[(facts.head >= 0) & (facts.relation >= 0) & (facts.tail >= 0)]
    drawn = {kind: corrupt(known, train, seed=_seed(model.seed, kind), kind=kind) for kind in kinds}
    negatives = {kind: found for kind, found in drawn.items() if (status_codes(model, found) == 0).any()}
    if drawn and not negatives:
        raise InputError(
            f"none of the {', '.join(drawn)} non-facts for calibration has its entities and its relation in the "
            "training facts: calibrate with more facts"
        )
    likeness = _learned(predictor.method, model.seed, list(negatives))
    return replace(predictor, method=open_world(predictor.method, negatives, likeness, share))


def parts_of(method: IntervalPredictor) -> dict[str, NDArray[Any]]:
    """What a run stores of the second calibration; empty for asserted facts."""
    if not isinstance(method, OpenWorld):
        return {}
    found = {f"calibration/{name}": array for name, array in method.nonfact_arrays().items()}
    if not isinstance(method.likeness, ScoreLikeness):
        learned: Any = method.likeness
        found |= {f"likeness/{name}": array for name, array in learned.arrays().items()}
    return found


def reopened(method: IntervalPredictor, parts: Mapping[str, NDArray[Any]]) -> OpenWorld:
    """The method again with what `parts_of` gave; ValueError if it does not fit."""
    by_kind: dict[str, dict[str, NDArray[Any]]] = {"calibration": {}, "likeness": {}}
    for name, array in parts.items():
        kind, _, rest = name.partition("/")
        if kind not in by_kind:
            raise ValueError(f"the calibration holds {name}, which nobody knows")
        by_kind[kind][rest] = array
    likeness: Likeness = ScoreLikeness(method)
    if by_kind["likeness"]:
        from unkgcp.evidence.nonfacts import FactLikeness

        model = getattr(method, "evidence", None)
        if model is None:
            raise ValueError("the calibration holds trees for a method that has none")
        likeness = FactLikeness.restore(model, by_kind["likeness"])
    return restore_open_world(method, likeness, by_kind["calibration"])


def _learned(method: IntervalPredictor, seed: int, kinds: Sequence[str]) -> Likeness | None:
    """Trees of the evidence method that tell facts from others; None for methods without."""
    model = getattr(method, "evidence", None)
    if model is None:
        return None
    from unkgcp.evidence.crossfit import fold_of_rows
    from unkgcp.evidence.nonfacts import learn_likeness

    fold = None if model.backbone is None else fold_of_rows(len(model.evidence.train), seed)
    # who has to tell apart what lies near should have seen what lies nearer
    return learn_likeness(model, seed=seed, fold=fold, kinds=[*kinds, *[JOINED] * ("near" in kinds)])


def _seed(seed: int, kind: str) -> int:
    """A stream of corruptions for each kind."""
    return int(np.random.SeedSequence((seed, 1 + KINDS.index(kind))).generate_state(1)[0])
