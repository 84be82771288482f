"""The monitor: is there evidence that new labelled facts are unlike those that a run was calibrated on?

What it is: a test of whether facts are exchangeable with the calibration facts of their kind (known pair, new pair,
...), which is all that the guarantee assumes. Facts are scored as at calibration, ranked among calibration and earlier
facts of the same kind (`Bag`), and the ranks are bet on (`Martingale`). One monitor is one test and may be looked at
after every fact: the probability that facts exchangeable with the calibration facts *ever* raise an alarm in it is at
most `false_alarm`. A new monitor is a new test with a false-alarm rate of its own; `watch` with a state file makes all
calls one test. What it is not: a proof that the promise holds (no alarm means no evidence against it, which is less),
or a test of whether the model is good. Facts of a kind without calibration facts are counted and left out.

Facts that come together (`IntervalPredictor.units`: all facts of a new entity, of a new pair, repeats of a new triple)
are one unit, and units are what is exchangeable. One row of each is tested, drawn as calibration draws it, and later
rows of a unit of which one was ranked are left out: ten equal rows would look like ten facts that surprise alike.

Half of the false-alarm rate is for all facts together, half for the relations. A relation with at least 19
calibration facts has bags and a martingale of its own, and its alarm goes off at R times the capital, where R is the
number of such relations (Bonferroni): the chance of any false alarm among them is then within their half.

**Updates.** After an update the run has another model and more calibration facts. The test goes on with its capital if
every fact that it counted is now a calibration fact of the run, as when one first updates and then monitors: a fact
that the update held out is ranked among the calibration facts that came before it, under the model of the day, which
never saw any of them. Given the training facts these ranks are independent and uniform, whatever model ranks them, so
that the capital stays a martingale. Where counted facts went into training, the test begins anew, with a smaller part
of the rate: the j-th beginning has the share 1 / (j (j + 1)), so that all of them together keep the rate.

>>> from unkgcp.evaluation.monitor import Monitor
>>> monitor = Monitor(unkgcp.Predictor.load("run"), false_alarm=0.01)      # doctest: +SKIP
>>> monitor.update([("a", "likes", "b")], [0.7]).broken                    # doctest: +SKIP
False
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.conformal.martingale import Stream
from unkgcp.conformal.units import one_row_per_unit
from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import Floats, contains, hits_law, middle
from unkgcp.evaluation.query_groups import answered, query_kinds, threshold_groups
from unkgcp.graph.facts import Graph, Triples, in_vocabulary
from unkgcp.graph.kinds import KINDS
from unkgcp.graph.objects import Queries, to_triples
from unkgcp.methods.method import IntervalPredictor, some_rows
from unkgcp.run.predictor import Predictor

LARGE = 19
"""A relation with at least so many calibration facts is watched by itself: as many as a level of 95 % needs."""


class Monitor:
    """Watches the promise of a predictor at one level.

    confidence: the level whose coverage is reported and whose misses are bet on. false_alarm: the probability that
    exchangeable facts ever raise an alarm in this monitor. seed: for the random numbers that break ties. calibration:
    the facts to compare with instead of the run's calibration facts, needed where the method trained on these (cv+).
    by_relation: if False, all facts are tested together only, with the whole rate. watched: the relations that are
    watched by themselves, by label, where that was decided before.
    """

    def __init__(
        self,
        predictor: Predictor,
        *,
        confidence: float = 0.9,
        false_alarm: float = 0.01,
        seed: int = 0,
        calibration: Graph | None = None,
        by_relation: bool = True,
        watched: Sequence[str] | None = None,
    ) -> None:
        if not 0 < false_alarm < 1:
            raise InputError(f"the false-alarm rate is {false_alarm:g} but must lie between 0 and 1")
        if not 0 < confidence < 1:
            raise InputError(f"the confidence is {confidence:g} but must lie between 0 and 1 to be watched")
        self.predictor, self.confidence, self.false_alarm = predictor, confidence, false_alarm
        self.seed, self.by_relation = seed, by_relation
        self._units: set[tuple[int, ...]] = set()
        reference = reference_of(predictor, calibration)
        reference = reference[self._rows_of_new_units(reference)]
        scores, kinds = (
            _scores(predictor.method, reference, reference.truth),
            query_kinds(predictor.model, reference),
        )
        self.calibration_facts = len(scores)
        labels = predictor.model.vocabulary.relations
        self.facts_of, self.hits_of = np.zeros((2, len(labels)), np.int64)
        """Facts of each relation that this monitor was given, and how many of them their interval covers."""
        self.left_out = dict.fromkeys(KINDS, 0)
        self.repeats = 0
        """Facts that were not tested, because another fact of their unit is."""
        self.asked: list[Triples] = []
        self.alarms_before: list[str] = []
        self._ties, self._relation_ties = np.random.default_rng(seed).spawn(2)
        if watched is None:
            large = np.flatnonzero(np.bincount(reference.relation, minlength=1) >= LARGE)
            watched = [labels[code].as_py() for code in large.tolist()] if by_relation else []
        self.rate = false_alarm / 2 if watched else false_alarm
        self.all = Stream(scores, kinds, confidence, -math.log(self.rate))
        self.relations = {}
        codes = predictor.model.vocabulary.relation_ids(list(watched)).tolist() if watched else []
        for label, code in zip(watched, codes, strict=True):
            rows, log_alarm = reference.relation == code, math.log(len(watched)) - math.log(false_alarm / 2)
            self.relations[label] = Stream(scores[rows], kinds[rows], confidence, log_alarm)

    def update(self, triples: Queries, confidences: ArrayLike) -> Self:
        """Take in labelled facts, in the order in which they came.

        triples: in any form that `Predictor.interval` takes; confidences: (n,), or (n, 2) for lower and upper.
        """
        ids = to_triples(triples, self.predictor.model.vocabulary)
        truth = _checked(confidences, len(ids.head))
        if truth.ndim == 2 and "length" not in self.predictor.method.needs:
            raise InputError(
                "the labelled facts have lower and upper, the run was fitted on single confidences; "
                "give facts with one confidence each"
            )
        kinds, answer = (
            query_kinds(self.predictor.model, ids),
            self.predictor.method.interval(ids, self.confidence),
        )
        usable = in_vocabulary(ids) & np.isin(kinds, list(self.all.bags)) & ~np.isnan(answer.score)
        for code, kind in enumerate(KINDS):
            self.left_out[kind] += int(((kinds == code) & ~usable).sum())
        rows = np.flatnonzero(usable)
        asked = Graph(*some_rows(ids, rows), np.zeros(len(rows)), self.predictor.model.vocabulary)
        drawn = rows[self._rows_of_new_units(asked)]
        self.repeats += len(rows) - len(drawn)
        if len(drawn):
            self._take(
                some_rows(ids, drawn),
                truth[drawn],
                kinds[drawn],
                contains(truth, answer.lower, answer.upper)[drawn],
            )
        return self

    def _rows_of_new_units(self, facts: Graph) -> NDArray[np.intp]:
        """A row of each unit of which no row was taken before."""
        if not self.predictor.method.tells_kinds:
            return np.arange(len(facts))
        units = self.predictor.method.units(facts)
        labels = list(map(tuple, units.tolist()))
        new = np.flatnonzero([label not in self._units for label in labels])
        self._units.update(label for label in labels if label[0] >= 0)
        return new[one_row_per_unit(units[new], self.seed)]

    def _take(
        self, triples: Triples, truth: Floats, kinds: NDArray[np.int8], covered: NDArray[np.bool_]
    ) -> None:
        method, labels = self.predictor.method, self.predictor.model.vocabulary.relations
        scores, relation = _scores(method, triples, truth), triples.relation
        self.asked.append(triples)
        np.add.at(self.facts_of, relation, 1)
        np.add.at(self.hits_of, relation[covered], 1)
        self.all.update(scores, kinds, self._ties.random(len(scores)))
        uniform = self._relation_ties.random(len(scores))
        for code in np.unique(relation).tolist():
            stream = self.relations.get(labels[code].as_py())
            if stream is not None:
                rows = (relation == code) & np.isin(kinds, list(stream.bags))
                stream.update(scores[rows], kinds[rows], uniform[rows])

    @property
    def facts(self) -> int:
        """How many facts the test has counted, with those of the calls that it goes on from."""
        return self.all.martingale.size

    @property
    def coverage(self) -> float:
        """Share of the facts of this monitor that their interval covers; NaN before the first one."""
        facts = int(self.facts_of.sum())
        return int(self.hits_of.sum()) / facts if facts else math.nan

    @property
    def broken(self) -> bool:
        """Whether an alarm has gone off; it stays."""
        return bool(self.alarms)

    @property
    def alarms(self) -> list[str]:
        """`all` if the facts together raised the alarm, then the labels of the relations that did."""
        together = ["all"] if self.all.alarm_at is not None else []
        alone = [label for label, stream in self.relations.items() if stream.alarm_at is not None]
        return list(dict.fromkeys([*self.alarms_before, *together, *alone]))

    @property
    def coverage_p_value(self) -> float | None:
        """At most this is P(as few covered facts or fewer) for exchangeable facts, for one look only.

        None before the first fact, and for a method whose hits follow no law.
        """
        if not self.asked:
            return None
        triples = Triples(*(np.concatenate(columns) for columns in zip(*self.asked, strict=True)))
        groups = threshold_groups(self.predictor.method, triples)
        if groups is None:
            return None
        return float(min(1.0, hits_law(groups.cases(), self.confidence)[: int(self.hits_of.sum()) + 1].sum()))

    def state(self) -> dict[str, Any]:
        """Plain values from which `resume` goes on; they do not hold the facts that were counted."""
        streams = {label: stream.state() for label, stream in self.relations.items()}
        return {"all": self.all.state(), "relations": streams, "alarms": self.alarms}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on with the test that gave this state, before any fact; `calibration` must hold the facts it counted."""
        self.all.resume(state["all"])
        for label, stream in self.relations.items():
            stream.resume(state["relations"][label])
        self.alarms_before = [str(label) for label in state["alarms"]]
        # ties of later facts are broken by new random numbers: every earlier fact took one step of the generator
        for generator in (self._ties, self._relation_ties):
            bits = generator.bit_generator
            assert isinstance(bits, np.random.PCG64)
            bits.advance(self.facts)

    def spend(self, share: float) -> None:
        """Use this share of the false-alarm rate only."""
        for stream in (self.all, *self.relations.values()):
            stream.log_alarm -= math.log(share)


def reference_of(predictor: Predictor, calibration: Graph | None) -> Graph:
    """The facts that new ones are compared with: the calibration facts of the run, or those given, in its ids."""
    if calibration is None and "members" in predictor.method.needs:
        raise InputError(
            f"method {predictor.method.name} trained on all of its facts, which are then no measure for new ones; "
            "name labelled facts as they were at that time, on which nothing was trained (--calibration FILE)"
        )
    facts = predictor.method.calibration_facts() if calibration is None else calibration
    facts = facts.over(predictor.model.vocabulary)
    return facts[answered(predictor.method, facts)]


def _scores(method: IntervalPredictor, triples: Any, truth: Floats) -> Floats:
    """How strange each label is: the score of calibration, or true confidence less prediction where there is none."""
    scores = method.nonconformity(triples, truth)
    return middle(truth) - method.interval(triples).score if scores is None else scores


def _checked(confidences: ArrayLike, count: int) -> Floats:
    truth = np.asarray(confidences, np.float64)
    if truth.shape not in ((count,), (count, 2)):
        raise ValueError(f"confidences have shape {truth.shape}, expected ({count},) or ({count}, 2)")
    if not ((truth >= 0) & (truth <= 1)).all():
        raise ValueError("a confidence is not a number in [0, 1]")
    if truth.ndim == 2 and (truth[:, 0] > truth[:, 1]).any():
        raise ValueError("the lower end of a confidence lies above the upper one")
    return truth
