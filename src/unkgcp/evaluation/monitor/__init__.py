"""The monitor: is there evidence that new labelled facts are unlike those that a run was calibrated on?

What it is: a test of whether a stream of facts is exchangeable with the calibration facts, which is all that the
guarantee assumes. Facts are scored as at calibration, ranked among calibration and earlier facts (`Bag`), and the
ranks are bet on (`Martingale`). One monitor is one test and may be looked at after every fact: the probability that
facts exchangeable with the calibration facts *ever* raise an alarm in it is at most `false_alarm`. A new monitor is a
new test with a false-alarm rate of its own; with `state` and `resume` a later monitor continues the same test. What it
is not: a proof that the promise holds (no alarm means no evidence against it, which is less), or a test of whether the
model is good. Facts about unknown entities or relations are counted and left out.

Half of the false-alarm rate is for all facts together, half for the relations. A relation with at least 19
calibration facts has a bag and a martingale of its own, and its alarm goes off at R times the capital, where R is the
number of such relations (Bonferroni): the chance of any false alarm among them is then within their half.

>>> from unkgcp.evaluation.monitor import Monitor
>>> monitor = Monitor(unkgcp.Predictor.load("run"), false_alarm=0.01)      # doctest: +SKIP
>>> monitor.update([("a", "likes", "b")], [0.7]).broken                    # doctest: +SKIP
False
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unkgcp.errors import InputError
from unkgcp.evaluation.metrics import beta_binomial_p_value, contains, hypergeometric_p_value, middle
from unkgcp.evaluation.monitor.martingale import Bag, Martingale
from unkgcp.graph.facts import Graph, Triples
from unkgcp.graph.objects import Queries, to_triples
from unkgcp.methods import STATUSES, IntervalPredictor
from unkgcp.methods.method import status_codes
from unkgcp.run.predictor import Predictor

__all__ = ["Look", "Monitor"]

Floats = NDArray[np.float64]

LARGE = 19
"""A relation with at least so many calibration facts is watched by itself: as many as a level of 95 % needs."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What new facts are compared with: scores of the calibration facts (l,), and their relations (l,) if known.

    `hits` is how many calibration facts the intervals cover. It is None where the method has one threshold, so that
    the number of new facts that are covered follows the beta-binomial law.
    """

    method: IntervalPredictor
    confidence: float
    scores: Floats
    relations: NDArray[np.int32] | None
    hits: int | None

    def measure(self, triples: Triples, truth: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Score of each known labelled fact, and whether its interval covers the label: (n,), (n,)."""
        if truth.ndim == 2 and "length" not in self.method.needs:
            raise InputError(
                "the labelled facts have lower and upper, the run was fitted on single confidences; "
                "give facts with one confidence each"
            )
        error, covered = _errors(self.method, triples, truth, self.confidence)
        scores = self.method.nonconformity(triples, truth) if self.hits is None else error
        assert scores is not None
        return scores, covered


def reference_of(predictor: Predictor, confidence: float, calibration: Graph | None) -> Reference:
    """The reference for a predictor; `calibration` are its calibration facts where it does not keep their scores."""
    method = predictor.method
    kept = method.calibration_scores()
    if kept is not None and calibration is None and method.one_threshold:
        return Reference(method, confidence, *kept, None)
    if calibration is None and "members" in method.needs:
        raise InputError(
            f"method {method.name} trained on all of its facts, which are then no measure for new ones; "
            "name labelled facts as they were at that time, on which nothing was trained (--calibration FILE)"
        )
    if calibration is None:
        raise InputError(
            f"method {method.name} keeps no scores of its calibration facts; "
            "name these facts, or calibrate the run with another method (unkgcp fit --from RUN --method cp)"
        )
    triples = to_triples(calibration, predictor.model.vocabulary)
    known = status_codes(predictor.model, triples) == 0
    triples = Triples(*(column[known] for column in triples))
    truth = calibration.truth[known]
    error, covered = _errors(method, triples, truth, confidence)
    return Reference(method, confidence, error, triples.relation, int(covered.sum()))


def _errors(
    method: IntervalPredictor, triples: Triples, truth: Floats, confidence: float
) -> tuple[Floats, NDArray[np.bool_]]:
    """True confidence less score, and whether the interval covers it (both ends, for truth (n, 2)): (n,), (n,)."""
    answer = method.interval(triples, confidence)
    return middle(truth) - answer.score, contains(truth, answer.lower, answer.upper)


@dataclass
class Stream:
    """A stream of facts: the bag in which their scores are ranked, and the martingale that bets on the ranks."""

    bag: Bag
    martingale: Martingale
    log_alarm: float
    """The logarithm of the capital at which the alarm goes off."""
    paths: list[Floats] = field(default_factory=list)
    alarm_at: int | None = None
    """The fact, counted from 1, at which the alarm first went off."""

    def state(self) -> dict[str, Any]:
        """Plain values to continue from, without the scores in the bag; the path is only drawn and has four digits."""
        return {
            "martingale": self.martingale.state(),
            "alarm_at": self.alarm_at,
            "path": np.round(self.path, 4).tolist(),
        }

    def resume(self, state: Mapping[str, Any], scores: Floats) -> None:
        """Continue from the state of another stream over the same calibration facts; scores: those that it has seen."""
        self.martingale.resume(state["martingale"])
        path, alarm_at = np.array(state["path"], np.float64), state["alarm_at"]
        if not self.martingale.size == len(scores) == len(path) or not np.isfinite(path).all():
            raise ValueError("the capital does not belong to these facts")
        if (alarm_at is None) == (self.martingale.log_largest >= self.log_alarm):
            raise ValueError("the alarm does not belong to the capital")
        if alarm_at is not None and not (type(alarm_at) is int and 1 <= alarm_at <= len(path)):
            raise ValueError("the alarm is at no fact")
        self.bag.take(scores)
        self.alarm_at, self.paths = alarm_at, [path]

    def update(self, scores: Floats, uniform: Floats) -> None:
        path = self.martingale.update(self.bag.p_values(scores, uniform))
        over = path >= self.log_alarm
        if self.alarm_at is None and over.any():
            self.alarm_at = self.martingale.size - len(path) + int(over.argmax()) + 1
        self.paths.append(path)

    @property
    def path(self) -> Floats:
        """The logarithm of the capital after each fact: (facts,)."""
        return np.concatenate(self.paths) if self.paths else np.empty(0)


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a test after the facts so far; coverage is NaN before the first one."""

    facts: int
    unknown: int
    coverage: float
    log_capital: float
    alarms: tuple[str, ...]
    """`all` and the labels of the relations whose alarm has gone off."""

    @property
    def broken(self) -> bool:
        return bool(self.alarms)


class Monitor:
    """Watches the promise of a predictor at one level.

    confidence: the level whose coverage is reported and whose misses are bet on. false_alarm: the probability that
    exchangeable facts ever raise an alarm in this monitor, or in one that continues from its state. seed: for the
    random numbers that break ties. calibration: the calibration facts, needed for methods that keep no scores of them
    (fpi, qr). by_relation: if False, all facts are tested together only, with the whole rate.
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
    ) -> None:
        if not 0 < false_alarm < 1:
            raise InputError(f"the false-alarm rate is {false_alarm:g} but must lie between 0 and 1")
        if not 0 < confidence < 1:
            raise InputError(f"the confidence is {confidence:g} but must lie between 0 and 1 to be watched")
        self.predictor, self.confidence, self.false_alarm = predictor, confidence, false_alarm
        self.seed, self.by_relation, self.calibration = seed, by_relation, calibration
        self.reference = reference_of(predictor, confidence, calibration)
        self.unknown = dict.fromkeys(STATUSES[1:], 0)
        count = len(predictor.model.vocabulary.relations)
        self.facts_of, self.hits_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._seen: list[tuple[Floats, NDArray[np.int32], NDArray[np.bool_]]] = []
        self._ties, self._relation_ties = np.random.default_rng(seed).spawn(2)
        kept = self.reference.relations if by_relation else None
        large = [] if kept is None else np.flatnonzero(np.bincount(kept, minlength=1) >= LARGE).tolist()
        self.rate = false_alarm / 2 if large else false_alarm
        self.all = Stream(Bag(self.reference.scores), Martingale(confidence), -math.log(self.rate))
        self.relations = {
            code: Stream(
                Bag(self.reference.scores[kept == code]),
                Martingale(confidence),
                math.log(len(large)) - math.log(false_alarm / 2),
            )
            for code in large
        }

    def update(self, triples: Queries, confidences: ArrayLike) -> Look:
        """Take in labelled facts, in the order in which they came.

        triples: in any form that `Predictor.interval` takes; confidences: (n,), or (n, 2) for lower and upper.
        """
        ids = to_triples(triples, self.predictor.model.vocabulary)
        truth = _checked(confidences, len(ids.head))
        code = status_codes(self.predictor.model, ids)
        for place, status in enumerate(STATUSES[1:], start=1):
            self.unknown[status] += int((code == place).sum())
        known = np.flatnonzero(code == 0)
        if len(known):
            self._take(Triples(*(column[known] for column in ids)), truth[known])
        return self.look()

    def _take(self, triples: Triples, truth: Floats) -> None:
        scores, covered = self.reference.measure(triples, truth)
        self.all.update(scores, self._ties.random(len(scores)))
        uniform = self._relation_ties.random(len(scores))
        self._note(scores, triples.relation, covered)
        order = np.argsort(triples.relation, kind="stable")
        codes, starts = np.unique(triples.relation[order], return_index=True)
        for code, rows in zip(codes.tolist(), np.split(order, starts[1:]), strict=True):
            if code in self.relations:
                self.relations[code].update(scores[rows], uniform[rows])

    def _note(self, scores: Floats, relation: NDArray[np.int32], covered: NDArray[np.bool_]) -> None:
        np.add.at(self.facts_of, relation, 1)
        np.add.at(self.hits_of, relation[covered], 1)
        self._seen.append((scores, relation, covered))

    def state(self) -> dict[str, Any]:
        """Plain values from which a monitor of the same predictor and settings continues the same test.

        They hold the scores of all facts so far, because later facts are ranked among them.
        """
        scores, relations, covered = self._facts_so_far()
        return {
            "unknown": dict(self.unknown),
            "scores": scores.tolist(),
            "relations": relations.tolist(),
            "covered": covered.astype(int).tolist(),
            "all": self.all.state(),
            "by_relation": {str(code): stream.state() for code, stream in self.relations.items()},
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue the test of the monitor that gave this state; ValueError, KeyError or TypeError if none gave it.

        To be called before any fact. After an error the monitor is of no use.
        """
        scores = np.array(state["scores"], np.float64)
        # int64, because older NumPy would silently cut a number that is too large for int32
        relations, covered = np.array(state["relations"], np.int64), np.array(state["covered"], np.bool_)
        if not scores.shape == relations.shape == covered.shape == (len(scores),):
            raise ValueError("scores, relations and coverage are not of the same facts")
        if not np.isfinite(scores).all() or not ((relations >= 0) & (relations < len(self.facts_of))).all():
            raise ValueError("a score is no number or a relation is unknown")
        if set(state["by_relation"]) != {str(code) for code in self.relations}:
            raise ValueError("other relations were watched")
        if set(state["unknown"]) != set(self.unknown) or not all(
            type(count) is int and count >= 0 for count in state["unknown"].values()
        ):
            raise ValueError("the unknown facts are not counted")
        self.unknown = dict(state["unknown"])
        self.all.resume(state["all"], scores)
        for code, stream in self.relations.items():
            stream.resume(state["by_relation"][str(code)], scores[relations == code])
        self._note(scores, relations.astype(np.int32), covered)
        # ties of later facts are broken by new random numbers: every earlier fact took one step of the generator
        for generator in (self._ties, self._relation_ties):
            bits = generator.bit_generator
            assert isinstance(bits, np.random.PCG64)
            bits.advance(len(scores))

    def _facts_so_far(self) -> tuple[Floats, NDArray[np.int32], NDArray[np.bool_]]:
        """Score, relation and whether covered, of every fact compared so far: (facts,) each."""
        if not self._seen:
            return np.empty(0), np.empty(0, np.int32), np.empty(0, np.bool_)
        scores, relations, covered = zip(*self._seen, strict=True)
        return np.concatenate(scores), np.concatenate(relations), np.concatenate(covered)

    @property
    def facts(self) -> int:
        """How many facts were compared: those about known entities and relations."""
        return self.all.martingale.size

    @property
    def hits(self) -> int:
        """How many of them their interval covers."""
        return int(self.hits_of.sum())

    @property
    def broken(self) -> bool:
        """Whether an alarm has gone off; it stays."""
        return bool(self.alarms())

    def alarms(self) -> list[str]:
        """`all` if the facts together raised the alarm, then the labels of the relations that did."""
        labels = self.predictor.model.vocabulary.relations
        found = ["all"] if self.all.alarm_at is not None else []
        return found + [labels[c].as_py() for c, stream in self.relations.items() if stream.alarm_at]

    def look(self) -> Look:
        """The state of the test."""
        coverage = self.hits / self.facts if self.facts else math.nan
        unknown = sum(self.unknown.values())
        return Look(self.facts, unknown, coverage, self.all.martingale.log_capital, tuple(self.alarms()))

    @property
    def coverage_p_value(self) -> float:
        """P(as few covered facts or fewer), exactly, for exchangeable facts; for one look only."""
        measured = self.reference
        if measured.hits is None:
            return beta_binomial_p_value(self.hits, self.facts, len(measured.scores), self.confidence)
        return hypergeometric_p_value(self.hits, self.facts, measured.hits, len(measured.scores))


def _checked(confidences: ArrayLike, count: int) -> Floats:
    truth = np.asarray(confidences, np.float64)
    if truth.shape not in ((count,), (count, 2)):
        raise ValueError(f"confidences have shape {truth.shape}, expected ({count},) or ({count}, 2)")
    if not ((truth >= 0) & (truth <= 1)).all():
        raise ValueError("a confidence is not a number in [0, 1]")
    if truth.ndim == 2 and (truth[:, 0] > truth[:, 1]).any():
        raise ValueError("the lower end of a confidence lies above the upper one")
    return truth
