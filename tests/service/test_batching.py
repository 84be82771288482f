"""Requests that wait together are answered by one call of the model, each with its own answer."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from unkgcp.service.batching import INLINE, Batcher, Lookup
from unkgcp.service.middleware import Metrics
from unkgcp.service.request_body import Asked, Problem
from unkgcp.service.settings import Settings


class Counting:
    """The method of a predictor, with its calls written down; `wait` holds each of them up."""

    def __init__(self, method, wait=0.0, error=None):
        self.method, self.wait, self.error = method, wait, error
        self.calls, self.threads = [], []

    def interval(self, triples, levels):
        self.calls.append(len(triples.head))
        self.threads.append(threading.current_thread())
        time.sleep(self.wait)
        if self.error is not None:
            raise self.error
        return self.method.interval(triples, levels)

    def caution(self, level):
        return self.method.caution(level)


def batcher(predictor, settings=None, **counting):
    counted = Counting(predictor.method, **counting)
    fake = SimpleNamespace(model=predictor.model, method=counted)
    return Batcher(fake, settings or Settings(), Metrics("0", "m", "u")), counted


def asked(triples, levels=(0.9,)):
    return Asked(*zip(*triples, strict=True), levels, single=len(levels) == 1)


def gather(*questions):
    async def all_of_them():
        return await asyncio.gather(*(question() for question in questions), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_waiting_requests_share_a_call_and_keep_their_answers(predictor, triples):
    model, counted = batcher(predictor)
    parts = [triples[i : i + size] for i, size in enumerate([1, 5, 3, 0, 7, 2] * 3) if size]
    texts = gather(*(lambda part=part: model.answer(asked(part)) for part in parts))
    assert counted.calls == [sum(map(len, parts))]
    for part, text in zip(parts, texts, strict=True):
        alone = predictor.interval([tuple(triple) for triple in part])
        said = json.loads(text)
        assert said["lower"] == alone.lower.tolist()
        assert said["status"] == alone.status.tolist()


def test_levels_are_not_mixed(predictor, triples):
    model, counted = batcher(predictor)
    wanted = [(0.5,), (0.9,), (0.5,), (0.5, 0.9), (0.9,)]
    texts = gather(*(lambda levels=levels: model.answer(asked(triples[:4], levels)) for levels in wanted))
    assert sorted(counted.calls) == [4, 8, 8]
    for levels, text in zip(wanted, texts, strict=True):
        level = levels[0] if len(levels) == 1 else list(levels)
        found = predictor.interval([tuple(triple) for triple in triples[:4]], level)
        assert json.loads(text)["upper"] == found.upper.tolist()


def test_small_batches_run_in_place_and_large_ones_in_a_thread(predictor, triples):
    model, counted = batcher(predictor, wait=0.05)
    many = triples * (INLINE // len(triples) + 1)
    beats = 0

    async def questions():
        nonlocal beats
        work = asyncio.ensure_future(model.answer(asked(many)))
        while not work.done():
            await asyncio.sleep(0.005)
            beats += 1
        await model.answer(asked(triples))
        return work.result()

    assert len(json.loads(asyncio.run(questions()))["score"]) == len(many)
    assert beats > 3  # others were served while the large one was answered
    assert [thread is threading.main_thread() for thread in counted.threads] == [False, True]


def test_what_fails_fails_for_those_who_asked_and_no_one_else(predictor, triples):
    model, counted = batcher(predictor, error=RuntimeError("broken"))
    outcome = gather(*(lambda: model.answer(asked(triples[:2])) for _ in range(3)))
    assert [str(error) for error in outcome] == ["broken"] * 3
    counted.error = None
    assert gather(lambda: model.answer(asked(triples[:2])))[0].startswith(b'{"confidence":0.9')


def test_too_many_waiting_are_refused(predictor, triples):
    model, _ = batcher(predictor, Settings(max_waiting=10))
    outcome = gather(*(lambda: model.answer(asked(triples[:4])) for _ in range(4)))
    refused = [one for one in outcome if isinstance(one, Problem)]
    assert [problem.status for problem in refused] == [429, 429]
    # and once they are answered there is room again
    assert isinstance(gather(lambda: model.answer(asked(triples[:4])))[0], bytes)


def test_an_answer_that_takes_too_long_is_not_waited_for(predictor, triples):
    model, _ = batcher(predictor, Settings(answer_seconds=0.05), wait=0.3)
    many = triples * (INLINE // len(triples) + 1)
    outcome = gather(lambda: model.answer(asked(many)))
    assert isinstance(outcome[0], Problem)
    assert outcome[0].status == 503


def test_lookup_agrees_with_the_vocabulary_and_remembers_only_what_it_knows(predictor):
    vocabulary = predictor.model.vocabulary
    calls = []

    def find(labels):
        calls.append(list(labels))
        return vocabulary.entity_ids(labels)

    lookup = Lookup(find)
    labels = ["nobody", *vocabulary.entities.to_pylist()[:5], "nobody", vocabulary.entities[2].as_py()]
    for _ in range(2):
        np.testing.assert_array_equal(lookup.ids(labels), vocabulary.entity_ids(labels))
    assert calls[1] == ["nobody", "nobody"]


@pytest.mark.parametrize("size", [0, 1])
def test_lookup_of_few(size):
    lookup = Lookup(lambda labels: np.full(len(labels), -1, np.int32))
    assert lookup.ids(["x"] * size).tolist() == [-1] * size
