"""`unkgcp.update`: new facts join a run, and its trees are learned again only if the new facts are unlike the old ones.

The rule. A run keeps its training facts and the facts that were held out of training. Each new fact is held out with
the probability with which the run's own facts were, by a random draw that depends on nothing about the fact; all others
train. Old facts stay in their part, and a triple that the run has already takes its new confidence there. Whatever is
learned is learned from training facts alone. So a query that is drawn from the facts that were not trained on is one of
them like any other, and its rank among them is uniform: `docs/proofs/updating.md`.

Whether the trees of an evidence run still fit is decided by a test of exchangeability of the new *training* facts with
training facts that the trees have not learned from. Facts that are held out are never used for this decision: a model
chosen by them would fit them better than it fits queries, and the promise would break.

>>> preview(predictor, unkgcp.read("week-07.tsv"))["new"]                        # doctest: +SKIP
>>> again = update(unkgcp.Predictor.load("run"), unkgcp.read("week-07.tsv"))     # doctest: +SKIP
>>> again.save("run")                                                            # doctest: +SKIP
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.martingale import Stream
from unkgcp.conformal.ranks import rank
from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, concatenate, contained, in_vocabulary
from unkgcp.graph.known_facts import adopted
from unkgcp.graph.symmetry import symmetric_as_in
from unkgcp.methods import create
from unkgcp.methods.method import IntervalPredictor, status_codes
from unkgcp.run.calibration import Report, for_open_world, learn_evidence, silent
from unkgcp.run.fitting import further_models, refuse_interrupted
from unkgcp.run.predictor import Predictor
from unkgcp.training.config import GIVEN, NONE
from unkgcp.training.model import Model, NoModel

if TYPE_CHECKING:
    from unkgcp.evidence import EvidenceModel

RATE = "held_out_rate"
"""Where the provenance of a run keeps the share of facts that are held out."""
UPDATES = "updates"
"""Where it keeps what every update did, one after the other."""
CALIBRATE_ON = ("all", "new")
LEVEL = 0.9
"""The level for which held-out facts must suffice where only the new ones calibrate; the test also bets on misses at
this level."""
STREAM = 0x4E57  # sets the random numbers of updates apart from others of the same seed
FEWER = 10  # a fit has this many times the epochs of an update
FALSE_ALARM = 0.01
"""How often an update learns again though the new facts are like the old ones."""
CHUNK = 1 << 14  # facts that are scored together
MAX_TESTED, FEWEST_TESTED = 10_000, 19
"""At most so many new training facts are tested, drawn at random: more take long and find ever smaller changes; with
fewer facts to compare with nothing is tested."""


def update(
    predictor: Predictor,
    facts: Graph,
    *,
    refit: bool = False,
    calibrate_on: str = "all",
    seed: int = 0,
    device: str = "auto",
    source: Mapping[str, Any] | None = None,
    report: Report = silent,
) -> Predictor:
    """The run with new facts in it, calibrated anew; `predictor` stays as it is.

    Each new fact is held out for calibration with the probability with which the run's own facts were, drawn with
    `seed`, and becomes a training fact otherwise. A triple that the run has already gets its new confidence and stays
    on its side. The promise is then for a random fact of the updated graph; with `calibrate_on="new"` for a random one
    of the new facts.

    The graph that evidence looks at grows. Its trees are learned again with `refit`, or where the monitor finds that
    the new training facts are unlike those before. A backbone is trained further from its present parameters, with
    `refit` from the beginning. `source` is stored in the history of the run: where the facts came from.
    """
    if calibrate_on not in CALIBRATE_ON:
        raise InputError(f"calibrate_on is {calibrate_on!r} but must be one of {', '.join(CALIBRATE_ON)}")
    start = time.monotonic()
    check(predictor, refit)
    division = divide(predictor, facts, seed)
    why, evidence = "it was asked for" if refit else None, None
    if not refit and predictor.method.evidence is not None:
        with report("joining the facts to the graph", None):
            why = reason_to_learn(predictor.method, division.new_train, seed)
            evidence = predictor.method.evidence.over(division.train)
    again = refreshed(
        predictor,
        division,
        relearn=refit,
        evidence=evidence if why is None else None,
        calibrate_on=calibrate_on,
        device=device,
        report=report,
    )
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": dict(source or {}),
        "facts": len(facts),
        **division.counts(),
        "seed": seed,
        "held_out_rate": division.rate,
        "calibrate_on": calibrate_on,
        "learned_again": why,
        "training_facts": len(division.train),
        "calibration_facts": again.method.size,
        "seconds": round(time.monotonic() - start, 3),
    }
    again.provenance[UPDATES] = [*predictor.provenance.get(UPDATES, []), record]
    return again


def preview(predictor: Predictor, facts: Graph, seed: int = 0) -> dict[str, Any]:
    """What `update` would do with new facts, by name; nothing is done. InputError where `update` would refuse them.

    `new` facts would join, `to_training` and `to_calibration`; `changed` ones contradict the confidence that the run
    has for their triple; `known` ones agree with it. `new_entities` and `new_relations` are labels it does not have.
    """
    check(predictor, relearn=True)
    division, before = divide(predictor, facts, seed), predictor.model.vocabulary
    now = division.train.vocabulary
    return division.counts() | {
        "new_entities": now.entities[len(before.entities) :].to_pylist(),
        "new_relations": now.relations[len(before.relations) :].to_pylist(),
    }


def reason_to_learn(method: IntervalPredictor, new: Graph, seed: int = 0) -> str | None:
    """Why the trees of a run should be learned again, judged by its new training facts; None if not.

    These facts, which the run has not seen yet, are scored like the training facts that its trees have not learned
    from, those of the kind that most of them are of: how often each kind comes is no news about the trees. They are
    tested in random order, because they came together; those about new entities or relations do not count.
    """
    evidence, answerable = method.evidence, new[status_codes(method.model, new) == 0]
    if evidence is None or not len(answerable):
        return None
    kinds, practice = method.kinds(answerable), evidence.practice
    kind = int(np.bincount(kinds).argmax())
    answerable = answerable[kinds == kind]
    alike = practice.held & (practice.kind == kind) if method.tells_kinds else practice.held
    scored = practice.strangeness[alike]
    if len(scored) < FEWEST_TESTED:
        return None
    rng = np.random.default_rng((seed, 0x5EE))
    tested = answerable[rng.permutation(len(answerable))[:MAX_TESTED]]
    scores = np.concatenate(
        [
            evidence.distribution(tested[start : start + CHUNK]).scores(
                tested.confidence[start : start + CHUNK]
            )
            for start in range(0, len(tested), CHUNK)
        ]
    )
    stream = Stream(np.sort(scored), np.zeros(len(scored)), LEVEL, -math.log(FALSE_ALARM))
    stream.update(scores, np.zeros(len(scores)), rng.random(len(scores)))
    if stream.alarm_at is None:
        return None
    return (
        f"the monitor finds new training facts unlike those before, at a false-alarm rate of {FALSE_ALARM:g}"
    )


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Old and new facts in their parts, all over the vocabulary of the updated run."""

    train: Graph
    """All training facts: those from before in their order, then the new ones."""
    held: Graph
    """All facts held out, in random order."""
    is_new: NDArray[np.bool_]
    """Which of the facts held out are new: (n,)."""
    stopping: Graph | None
    """Facts that early stopping looks at, where these are no training facts."""
    taught: int
    """How many training facts are new."""
    rate: float
    seed: int
    changed: int
    """Triples that the run had with another confidence."""
    known: int
    """Triples that the run had with the same confidence."""
    repeated: int
    """Rows of the new facts whose triple comes again in a later row."""

    @property
    def new_train(self) -> Graph:
        return self.train[len(self.train) - self.taught :]

    def counts(self) -> dict[str, int]:
        held = int(self.is_new.sum())
        return {
            "new": self.taught + held,
            "to_training": self.taught,
            "to_calibration": held,
            "changed": self.changed,
            "known": self.known,
            "repeated": self.repeated,
        }


def check(predictor: Predictor, relearn: bool) -> None:
    """InputError unless the run can take in new facts; `relearn`: whether all is to be learned again."""
    method, model = predictor.method, predictor.model
    paper = predictor.provenance.get("protocol", "strict") == "paper" or predictor.negative is not None
    crossfitted = method.evidence is not None and method.evidence.backbone is not None
    refusals = {
        "the calibration facts of this run also chose its model (the paper's protocol), so that new ones beside "
        "them would promise nothing; fit all facts again with --protocol strict": paper,
        "cv+ trains on all of its facts and holds none out; fit all facts again": "members" in method.needs,
        "a run keeps no confidences that are intervals; fit all facts again": "length" in method.needs,
        "a model of your own is not trained here: train it on the new facts, and calibrate it again": (
            model.config.model == GIVEN
        ),
        f"{model.config.model} is trained from the beginning only: add --refit": (
            model.config.of_pykeen and not relearn
        ),
        "the run does not hold its training facts; fit it again": model.facts is None,
        "its quantile models know no new entities and are trained from the beginning only: add --refit": (
            "quantiles" in method.needs and not relearn
        ),
        "its cross-fitted backbones know no new entities and are trained from the beginning only: add --refit, or "
        "fit without a model, which does without them": crossfitted and not relearn,
    }
    for sentence, is_refused in refusals.items():
        if is_refused:
            raise InputError(sentence)


def divide(predictor: Predictor, facts: Graph, seed: int = 0) -> Division:
    """Draw which of the new facts train and which are held out.

    Of several rows with one triple the last counts. InputError if they bring nothing new.
    """
    if not len(facts):
        raise InputError("there is no fact to take in")
    if facts.ends is not None:
        raise InputError("the new facts have lower and upper, the run single confidences: give one each")
    before, vocabulary = _training_facts(predictor), predictor.model.vocabulary
    facts = symmetric_as_in(facts, vocabulary)
    held, stopping = predictor.method.held_out(), predictor.model.stopping
    graphs = [before, held] + ([] if stopping is None else [stopping.graph(vocabulary)])
    graphs = [replace(graph, vocabulary=vocabulary) for graph in graphs]
    rows = np.sort(len(facts) - 1 - np.unique(facts.keys[::-1], return_index=True)[1])
    repeated, facts = len(facts) - len(rows), facts[rows]
    renewed, had, changed = _renew(graphs, facts)
    if had.all() and not changed:
        raise InputError(
            f"the run has all of these {len(facts):,} facts already, with these confidences; there is nothing to do"
        )
    new = facts[~had]
    rate = predictor.provenance.get(RATE, len(held) / (len(held) + len(before)))
    number = len(predictor.provenance.get(UPDATES, []))
    rng = np.random.default_rng((STREAM, seed, number))
    drawn = rng.random(len(new)) < rate
    # labels of training facts are numbered first, so that no id depends on a fact that is held out
    taught = adopted(new[~drawn], vocabulary)
    apart = adopted(new[drawn], taught.vocabulary)
    train, all_held, *others = (replace(graph, vocabulary=apart.vocabulary) for graph in renewed)
    order = rng.permutation(len(all_held) + len(apart))
    return Division(
        concatenate([train, replace(taught, vocabulary=apart.vocabulary)]),
        concatenate([all_held, apart])[order],
        order >= len(all_held),
        others[0] if others else None,
        len(taught),
        rate,
        seed,
        changed,
        int(had.sum()) - changed,
        repeated,
    )


def _training_facts(predictor: Predictor) -> Graph:
    """The training facts; those of evidence in its own order, because it refers to them by their rows."""
    model = predictor.model
    assert model.facts is not None
    evidence = predictor.method.evidence
    return model.facts.graph(model.vocabulary) if evidence is None else evidence.evidence.train


def _renew(graphs: list[Graph], facts: Graph) -> tuple[list[Graph], NDArray[np.bool_], int]:
    """The parts with the confidences of new facts (each triple once), which of these (n,) they had, how many changed.

    All parts are treated alike, so that nothing depends on whether a fact was held out.
    """
    translated = facts.over(graphs[0].vocabulary)
    rows = np.flatnonzero(in_vocabulary(translated))
    translated = translated[rows]
    order = np.argsort(translated.keys)
    keys, confidence = translated.keys[order], translated.confidence[order]
    had, changed, renewed = np.zeros(len(keys), bool), np.zeros(len(keys), bool), []
    for graph in graphs:
        keys_of_graph = graph.keys
        rows_renewed = np.flatnonzero(contained(keys_of_graph, keys))
        place = np.searchsorted(keys, keys_of_graph[rows_renewed])
        had[place] = True
        changed[place[graph.confidence[rows_renewed] != confidence[place]]] = True
        now = graph.confidence.copy()
        now[rows_renewed] = confidence[place]
        renewed.append(graph.with_confidence(now))
    whole = np.zeros(len(facts), bool)
    whole[rows[order[had]]] = True
    return renewed, whole, int(changed.sum())


def refreshed(
    predictor: Predictor,
    division: Division,
    *,
    relearn: bool,
    evidence: EvidenceModel | None = None,
    calibrate_on: str = "all",
    device: str = "auto",
    report: Report = silent,
) -> Predictor:
    """The run over old and new facts, calibrated anew, with the settings that it had.

    Without `relearn` a backbone is trained further for some epochs. `evidence` is the evidence of the run over all
    facts; it is learned again if it is not given. Quantile models that the method does not need are left out.
    """
    before = predictor.method
    model = _model(predictor.model, division, relearn, device, report)
    same = {"seed": model.seed, "config": model.config, "validation": division.stopping, "device": device}
    quantiles, method_parts = further_models(division.train, before.needs, model, None, report, same)
    if quantiles:
        method_parts["quantiles"] = quantiles
    if before.evidence is not None:
        config = None if before.evidence.backbone is None else model.config
        method_parts["evidence"] = evidence or learn_evidence(model, division.held, config, device, report)
    calibrating = division.held if calibrate_on == "all" else division.held[division.is_new]
    answerable = int((status_codes(model, calibrating) == 0).sum())
    if calibrate_on == "new" and rank(LEVEL, answerable) > answerable:
        raise InputError(
            f"{answerable:,} of the new facts were held out of training and can be asked about, too few for confidence "
            f"{LEVEL:g}; give more facts, or calibrate on old and new ones together (--calibrate-on all)"
        )
    with report("calibrating", None):
        method = create(before.name, **before.options(), **method_parts).calibrate(model, calibrating)
        if calibrate_on == "new":
            assert method.waiting is not None
            method.waiting = concatenate([method.waiting, division.held[~division.is_new]])
        if before.for_open_world:
            likeness = None if evidence is None else before.likeness_over(evidence)
            kinds = before.nonfact_kinds
            method = for_open_world(method, model, calibrating, kinds, likeness)
    provenance = {**predictor.provenance, RATE: division.rate}
    again = Predictor(model, method, None, quantiles, provenance)
    aside = predictor.aside
    return again if aside is None else again.remembering(aside.graph(predictor.model.vocabulary))


def _model(before: Model, division: Division, relearn: bool, device: str, report: Report) -> Model:
    if before.config.model == NONE:
        return NoModel.of(division.train, before.seed)
    from unkgcp.training.trainer import train

    config, epochs = before.config, max(1, before.config.epochs // FEWER)
    if not relearn:  # from tables that are trained already
        config = replace(config, epochs=epochs, validate_every=min(config.validate_every, epochs))
    title = f"training {config.model}" + ("" if relearn else " further")
    with report(title, config.epochs) as progress:
        model = train(
            division.train,
            seed=before.seed,
            config=config,
            validation=division.stopping,
            device=device,
            progress=progress,
            initial=None if relearn else before.tables,
        )
    refuse_interrupted(model)
    return replace(model, config=before.config)
