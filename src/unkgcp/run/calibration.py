"""From a trained model and facts it has not seen to a calibrated predictor.

The promise is for asserted facts, or for whatever may be asked, triples that are no facts among them. The interval
methods themselves are in `unkgcp.methods`.

>>> calibrate(model, facts, "unkgcp")                              # doctest: +SKIP
>>> calibrate(model, facts, "evidence", population="open")         # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, Vocabulary
from unkgcp.graph.negatives import ALL_KINDS, JOINED, KINDS, corrupt
from unkgcp.graph.queries import to_triples
from unkgcp.methods.method import IntervalPredictor, status_codes
from unkgcp.methods.partitions import NONE, Partitioned, partition_names
from unkgcp.methods.registry import create, predictor_class
from unkgcp.run.predictor import Predictor
from unkgcp.run.untrained import check_untrained
from unkgcp.training.given_model import GivenModel, OwnModel, given
from unkgcp.training.model import Model

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel
    from unkgcp.evidence.nonfacts import FactLikeness

POPULATIONS = ("asserted", "open")


def calibrate(
    model: Model | OwnModel,
    facts: Graph,
    method: str = "unkgcp",
    *,
    vocabulary: Vocabulary | None = None,
    training: Graph | None = None,
    name: str | None = None,
    negatives: Graph | None = None,
    quantiles: Mapping[float, Model] | None = None,
    population: str = "asserted",
    kinds: Sequence[str] = KINDS,
    share: float | None = None,
    protocol: str = "strict",
    **options: Any,
) -> Predictor:
    """Calibrate an interval method on facts that the model was not trained on.

    `model` comes from `unkgcp.train`, or is one of your own: an object with `score(head, relation, tail)` over the
    ids of `vocabulary` (that of the facts if left out), or a function of labels; scores lie in [0, 1]. `training` are
    then the facts it learned from, which some methods need, and `name` is what messages call it: see
    `unkgcp.training.given_model`.
    Training facts among them, where the model knows its own, are told in a `TrainedFactsWarning`, and refused if they
    are many; so are facts that early stopping looked at, unless `protocol` is "paper": there it looked at the
    calibration facts, as the paper's experiments did, and the guarantee is not strict.
    `method` is `unkgcp`, `cp`, `fpi`, `qr`, `shortest` or `evidence`; `qr` needs `quantiles` (see
    `unkgcp.training.train_quantiles`). `evidence` learns from the model's training facts first, unless it is given
    `evidence=`, what `unkgcp.evidence.learn` made of them.
    Further options are those of the method; `per` names the groups in each of which the promise is to hold
    (`unkgcp.methods.partitions`). `negatives` adds the threshold with which the paper's tables of
    negatives are made. The guarantee of each method stands in `unkgcp.methods`.
    With `population="open"` queries may be no facts at all, and the promise holds for these too: see
    `unkgcp.methods.open_world`. `kinds` are the kinds of non-facts it is to hold for, `share` that of facts among the
    queries if it is known.
    """
    check_population(population, kinds, share, method, options.get("per"))
    if not isinstance(model, Model):
        model = given(model, vocabulary or facts.vocabulary, training, name=name)
    elif any(argument is not None for argument in (vocabulary, training, name)):
        raise InputError(
            "vocabulary, training and name are for a model of your own; a trained one has its own"
        )
    if isinstance(model, GivenModel) and not model.sample:
        model = model.tried(_own(facts, model))
    if not issubclass(predictor_class(method), Partitioned):
        options.pop("per", None)  # it is `none`, which goes with every method
    elif share is not None:
        options.setdefault("per", NONE)  # a share of facts has one threshold
    needs = predictor_class(method).needs
    if "quantiles" in needs:
        if not quantiles:
            raise InputError(f"method {method!r} needs quantile models; train them with train_quantiles")
        options["quantiles"] = quantiles
    if "evidence" in needs and options.get("evidence") is None:
        options["evidence"] = _learn_evidence(model)
    if "members" in needs and "members" not in options:
        raise InputError(f"method {method!r} needs models of its own; fit them with --calibrate {method}")
    facts = _own(facts, model)
    if "members" not in needs:
        check_untrained(model, facts, protocol)
    asked = create(method, **options).calibrate(model, facts)
    negative = None
    if negatives is not None:
        negative = create(method, **options).calibrate(model, _own(negatives, model))
    if population == "open":
        asked = for_open_world(asked, model, facts, kinds, share)
    return Predictor(model, asked, negative, quantiles or {})


def _learn_evidence(model: Model) -> EvidenceModel:
    from unkgcp.evidence import learn

    if model.facts is None:
        raise InputError(
            "the model does not know its training facts, from which the evidence method learns; give those of a model "
            "of your own with training=, train another again"
        )
    return learn(model.facts.graph(model.vocabulary), seed=model.seed)


def _own(facts: Graph, model: Model) -> Graph:
    """The facts in the model's ids; an unknown label becomes -1, which calibration leaves out."""
    if facts.vocabulary == model.vocabulary:
        return facts
    return Graph(*to_triples(facts, model.vocabulary), facts.confidence, model.vocabulary, facts.ends)


def check_population(
    population: str, kinds: Sequence[str], share: float | None, method: str, per: str | None
) -> None:
    """InputError if there is no such population or kind of non-facts, or if the method cannot promise this."""
    kind_of_method = predictor_class(method)
    if partition_names(per) and not issubclass(kind_of_method, Partitioned):
        raise InputError(
            f"method {method!r} has no promise per {per}; choose cp, unkgcp, shortest or evidence"
        )
    if population not in POPULATIONS:
        raise InputError(f"population is {population!r} but must be one of {', '.join(POPULATIONS)}")
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise InputError(f"there are no {kind!r} negatives; choose among {', '.join(ALL_KINDS)}")
    if share is not None and population != "open":
        raise InputError("a share of facts among the queries goes with --population open; add that")
    if share is not None:
        from unkgcp.methods.open_world import check_share

        check_share(share, kind_of_method, per)


def for_open_world(
    method: IntervalPredictor,
    model: Model,
    facts: Graph,
    kinds: Sequence[str],
    share: float | Fraction | None,
    likeness: FactLikeness | None = None,
) -> IntervalPredictor:
    """The method for queries that may be no facts; `facts` are its calibration facts, in the model's ids.

    Non-facts for calibration are corruptions of these facts, of the kinds asked for and filtered with the training
    facts alone. Kinds that this graph has none of (`relation` where there is but one) are left out. With the evidence
    method, what tells facts from others is learned from the training facts, unless it comes as `likeness`.
    """
    from unkgcp.methods.open_world import open_world

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
    if likeness is None:
        likeness = _fact_likeness(method, model.seed, list(negatives))
    return open_world(method, negatives, likeness, share)


def _fact_likeness(method: IntervalPredictor, seed: int, kinds: Sequence[str]) -> FactLikeness | None:
    """Trees that tell facts from others, learned for the evidence method; None for methods without evidence."""
    model = method.evidence
    if model is None:
        return None
    from unkgcp.evidence.crossfit import fold_of_rows
    from unkgcp.evidence.nonfacts import learn_likeness

    fold = None if model.backbone is None else fold_of_rows(len(model.evidence.train), seed)
    # Near non-facts are the hardest to tell from facts. Trees do that better if they have also learned from still
    # nearer ones, whose head and tail are joined by another training fact, so these are added to the lesson.
    lesson = [*kinds, JOINED] if "near" in kinds and JOINED not in kinds else kinds
    return learn_likeness(model, seed=seed, fold=fold, kinds=lesson)


def _seed(seed: int, kind: str) -> int:
    """A stream of corruptions for each kind."""
    return int(np.random.SeedSequence((seed, 1 + ALL_KINDS.index(kind))).generate_state(1)[0])
