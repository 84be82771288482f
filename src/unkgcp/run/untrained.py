"""Calibration facts that the model was trained on: how many there are, and how many may be.

A model's errors on its training facts are smaller than on others, so calibrating on these makes intervals too narrow.
Facts that early stopping looked at chose the model, and count as training facts. Some calibration facts may always be
among them: graphs repeat facts, and of two equal ones the first may train and the second calibrate. How many that
explains follows from the repeats within the training facts. Repeated triples with another confidence are facts of their
own and are not counted.

>>> from unkgcp.graph import Graph, Vocabulary
>>> ids = np.zeros(3, np.int32)
>>> facts = Graph(ids, ids, ids, np.array([0.1, 0.2, 0.3]), Vocabulary.of(["a"], ["likes"]))
>>> count_trained(facts[:2], facts[1:])
Trained(found=1, expected=0.0, explained=0)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError, TrainedFactsWarning
from unkgcp.graph.facts import Graph, Vocabulary, concatenate, contained, triple_keys
from unkgcp.graph.known import fingerprints
from unkgcp.graph.queries import to_triples

if TYPE_CHECKING:
    from unkgcp.run.predictor import Predictor
    from unkgcp.training.model import Model

FALSE_ALARM = 1e-3
"""How often a random split of a graph with repeats may have more of them than are explained."""
HALF = 0.5
"""Pairs of equal facts added to those seen in training."""
MOST = 0.1
"""The share of the calibration facts, beyond those expected, from which on they are refused."""


class Trained(NamedTuple):
    """How many calibration facts are training facts, and how many of these the repeats of the graph explain."""

    found: int
    expected: float
    """The number that repeats bring on average, in random splits."""
    explained: int
    """The number that they bring at most, but for bad luck."""

    @property
    def excess(self) -> int:
        return max(0, self.found - self.explained)


@contextmanager
def only_repeats(explained: bool) -> Iterator[None]:
    """No warning in here if repeats explain whatever training and calibration facts have in common.

    They do where one graph was cut at random by this package, and where a run is calibrated again on the facts it was
    fitted with, of which `fit` has said what there is to say.
    """
    with warnings.catch_warnings():
        if explained:
            warnings.simplefilter("ignore", TrainedFactsWarning)
        yield


def without_held(predictor: Predictor, facts: Graph, parts: Sequence[Graph]) -> NDArray[np.bool_]:
    """Which facts of a data set with these other parts did not come into the run by an update: (n,).

    An update may bring facts that were test facts of the run's data. What was trained on or calibrated with is no test
    any more. Repeats within the data set itself stay, as they do for a run that was never updated.
    """
    if not predictor.provenance.get("updates"):
        return np.ones(len(facts), bool)
    held = held_keys(predictor)
    inside, *own = (_keys(graph, predictor.model.vocabulary) for graph in (facts, *parts))
    return ~contained(inside, np.setdiff1d(held, np.concatenate([np.zeros(0, np.int64), *own])))


def held_keys(predictor: Predictor) -> NDArray[np.int64]:
    """The triples that a run holds, for training or held out of it, as sorted keys of its vocabulary."""
    method, known, vocabulary = predictor.method, predictor.model.facts, predictor.model.vocabulary
    parts = [method.ranked, method.waiting, None if known is None else known.graph(vocabulary)]
    return np.unique(np.concatenate([part.keys for part in parts if part is not None]))


def _keys(facts: Graph, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Keys of the facts in a vocabulary, -1 for one with a label that is not in it: (n,)."""
    ids = to_triples(facts, vocabulary)
    keys = triple_keys(*ids, len(vocabulary.entities), len(vocabulary.relations))
    return np.where((ids.head >= 0) & (ids.relation >= 0) & (ids.tail >= 0), keys, -1)


def check_untrained(model: Model, facts: Graph, protocol: str = "strict") -> None:
    """Look for training facts of the model among calibration facts, where the model still knows its own.

    One more than explained is a `TrainedFactsWarning`, more than a tenth of all an InputError. Under the protocol
    `paper` early stopping looks at the calibration facts, and the run says so; only training facts count there.
    """
    if model.facts is None:
        return
    training = model.facts.graph(model.vocabulary)
    stopping = None
    if model.stopping is not None and protocol != "paper":
        stopping = model.stopping.graph(model.vocabulary)
    check_apart(training, stopping, facts)


def check_apart(training: Graph, stopping: Graph | None, facts: Graph) -> None:
    """The same for facts at hand: those trained on, those that early stopping looks at, and those to calibrate on."""
    counted = training if stopping is None else concatenate([training, stopping])
    trained = count_trained(counted, facts)
    if not trained.excess:
        return
    also = "" if stopping is None else " or was chosen by them in early stopping"
    seen = f"the model was trained on {trained.found:,} of these {len(facts):,} facts{also}"
    if trained.found - trained.expected > MOST * len(facts):
        raise InputError(
            f"{seen}; its errors on them say nothing about others: calibrate on facts it has not seen"
        )
    sentence = (
        f"{seen}; repeats in the graph explain no more than {trained.explained:,}; its errors on them are too small, "
        "and so are the intervals: leave these facts out"
    )
    warnings.warn(sentence, TrainedFactsWarning, stacklevel=3)


def count_trained(training: Graph, facts: Graph) -> Trained:
    """How many of the facts (triple and confidence) are training facts, and how many may be in a random split."""
    vocabulary = training.vocabulary
    ids = to_triples(facts, vocabulary)
    known = (ids.head >= 0) & (ids.relation >= 0) & (ids.tail >= 0)
    own = Graph(*ids, facts.confidence, vocabulary)[known]
    marks, count = np.unique(fingerprints(training), return_counts=True)
    found = int(np.isin(fingerprints(own), marks).sum())
    twins = int(count[count > 1].sum())
    expected = len(facts) * twins / max(len(training), 1)
    return Trained(found, expected, explained(twins, len(training), len(facts)))


def explained(twins: int, training: int, calibration: int) -> int:
    """How many calibration facts may be training facts by chance, if `twins` training facts have an equal one there.

    Cut a graph at random. Of two equal facts, one trains and one calibrates with odds 2 l : n against both being
    among the n training facts (l calibrate). So beside twins / 2 such pairs in training, the number of pairs that were
    cut apart is negative binomial; this is its upper quantile, exceeded with probability `FALSE_ALARM`. Half a pair is
    added because training holds only a part of the graph's repeats. Without any in training nothing is explained: one
    fact in common is then worth a sentence.
    """
    if not twins:
        return 0
    from scipy.special import betainc

    numbers = np.arange(calibration + 1)
    # the distribution function of the negative binomial law: at most so many cut apart before the pairs in training
    below = betainc(twins / 2 + HALF, numbers + 1.0, training / (training + 2 * calibration))
    return int(np.argmax(below >= 1 - FALSE_ALARM)) if below[-1] >= 1 - FALSE_ALARM else calibration
