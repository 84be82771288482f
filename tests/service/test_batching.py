"""Small requests share calls and go first, large ones are cut into slices, and what takes too long is refused."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.service.conftest import Known, asked
from unkgcp.service.batching import SLICE, Batcher
from unkgcp.service.limits import GUESS, LARGEST, Cost, Metrics, Problem, Settings
from unkgcp.service.lookups import Lookup

SLOW = 2 * SLICE  # seconds for a triple with which a slice has one triple only


class Counting:
    """The method of a predictor, with its calls written down; `slow` holds each up by so many seconds a triple."""

    def __init__(self, method, slow=0.0, error=None):
        self.method, self.slow, self.error = method, slow, error
        self.calls, self.threads = [], []

    def interval(self, triples, levels):
        self.calls.append(len(triples.head))
        self.threads.append(threading.current_thread())
        time.sleep(self.slow * len(triples.head))
        if self.error is not None:
            raise self.error
        return self.method.interval(triples, levels)

    def caution(self, level):
        return self.method.caution(level)


@pytest.fixture
def patient(monkeypatch):
    """Requests count as small up to half a second: how busy the machine is does not matter then."""
    monkeypatch.setattr("unkgcp.service.batching.SMALL", 0.5)
    monkeypatch.setattr("unkgcp.service.batching.TOGETHER", 5.0)


def batcher(predictor, settings=None, measured=True, **counting):
    """A batcher and the calls of its method; those of the measurement are not listed."""
    counted = Counting(predictor.method, **counting)
    fake = SimpleNamespace(model=predictor.model, method=counted)
    made = Batcher(fake, settings or Settings(max_levels=2), Metrics("0", {"run": ("m", "u")}))
    if measured:
        failure, counted.error = counted.error, None
        made.measure(("a", "b", "c"))
        for levels in ((0.5,), (0.9,)):
            made._notes_of(levels)
        counted.calls.clear()
        counted.threads.clear()
        counted.error = failure
    return made, counted


def gather(*questions):
    async def all_of_them():
        return await asyncio.gather(*(question() for question in questions), return_exceptions=True)

    return asyncio.run(all_of_them())


def test_waiting_requests_share_a_call_and_keep_their_answers(predictor, triples, patient):
    model, counted = batcher(predictor)
    parts = [triples[i : i + size] for i, size in enumerate([1, 5, 3, 0, 7, 2] * 3) if size]
    texts = gather(*(lambda part=part: model.answer(asked(part)) for part in parts))
    assert counted.calls == [sum(map(len, parts))]
    for part, text in zip(parts, texts, strict=True):
        alone = predictor.interval([tuple(triple) for triple in part])
        said = json.loads(text)
        assert said["lower"] == alone.lower.tolist()
        assert said["status"] == alone.status.tolist()


def test_levels_are_not_mixed(predictor, triples, patient):
    model, counted = batcher(predictor)
    wanted = [(0.5,), (0.9,), (0.5,), (0.5, 0.9), (0.9,)]
    texts = gather(*(lambda levels=levels: model.answer(asked(triples[:4], levels)) for levels in wanted))
    assert sorted(counted.calls) == [4, 8, 8]
    for levels, text in zip(wanted, texts, strict=True):
        level = levels[0] if len(levels) == 1 else list(levels)
        found = predictor.interval([tuple(triple) for triple in triples[:4]], level)
        assert json.loads(text)["upper"] == found.upper.tolist()


def test_what_costs_little_runs_in_place_and_what_costs_much_in_a_thread(predictor, triples, patient):
    """However few triples a request has: with cv+ over many facts a single one takes milliseconds."""
    model, counted = batcher(predictor)
    gather(lambda: model.answer(asked(triples)))
    assert counted.threads == [threading.main_thread()]
    model, counted = batcher(predictor, measured=False)
    model.cost = Known(0.3)
    gather(lambda: model.answer(asked(triples[:2])))
    assert counted.calls == [1, 1]
    assert threading.main_thread() not in counted.threads


def test_before_anything_was_measured_nothing_runs_in_the_event_loop(predictor, triples):
    model, counted = batcher(predictor, measured=False)
    gather(lambda: model.answer(asked(triples)))
    assert threading.main_thread() not in counted.threads


def test_a_level_whose_notes_take_long_is_not_looked_at_in_the_event_loop(predictor, triples, patient):
    model, counted = batcher(predictor)
    gather(lambda: model.answer(asked(triples, (0.123,))))
    assert threading.main_thread() not in counted.threads
    counted.threads.clear()
    gather(lambda: model.answer(asked(triples, (0.123,))))
    assert counted.threads == [threading.main_thread()]


def test_slices_give_the_same_bits_as_one_call(predictor, triples):
    many = triples * 40
    model, counted = batcher(predictor, slow=SLICE / 64)
    (text,) = gather(lambda: model.answer(asked(many, (0.5, 0.9))))
    assert sum(counted.calls) == len(many)
    assert max(counted.calls) <= 64 < len(many)
    whole = predictor.interval([tuple(triple) for triple in many], [0.5, 0.9])
    said = json.loads(text)
    assert said["lower"] == whole.lower.tolist()
    assert said["upper"] == whole.upper.tolist()
    assert np.array_equal(np.array(said["score"], float), whole.score.astype(float), equal_nan=True)
    assert said["status"] == whole.status.tolist()


def test_small_requests_go_ahead_of_large_ones(predictor, triples):
    """A request of 5 slices beside one of 100: after it comes, the large one gets few of them until it is answered."""
    model, counted = batcher(predictor, slow=SLOW)

    async def questions():
        large = asyncio.ensure_future(model.answer(asked((triples * 3)[:100])))
        while len(counted.calls) < 20:
            await asyncio.sleep(SLOW / 4)
        before = len(counted.calls)
        await model.answer(asked(triples[:5]))
        between = len(counted.calls) - before
        assert not large.done()
        await large
        return between

    # 5 of its own, one that was on its way, and as many as the large one has waited for longer: 5 x 20 / 100
    assert asyncio.run(questions()) <= 5 + 1 + 1 + 1


def test_a_large_request_is_not_put_off_for_ever(predictor, triples):
    """Clients that always have a small request waiting: the large one ends, after having waited in proportion."""
    model, counted = batcher(predictor, slow=SLOW)

    async def questions():
        large = asyncio.ensure_future(model.answer(asked(triples[:20])))

        async def client():
            while not large.done():
                await model.answer(asked(triples[:2]))

        await asyncio.gather(large, *(client() for _ in range(3)))

    asyncio.run(questions())
    assert (
        sum(counted.calls) < 20 * 12
    )  # a fair share is one slice of four; first come first served would starve


def test_what_would_take_too_long_alone_is_refused_with_the_remedy(predictor, triples):
    model, counted = batcher(predictor, Settings(max_levels=2, answer_seconds=10), measured=False)
    model.cost = Known(1.0)
    outcome = gather(lambda: model.answer(asked(triples[:40])), lambda: model.answer(asked(triples[:4])))
    assert outcome[0].status == 422
    assert outcome[0].sentence == (
        "40 triples would take this run about 40 seconds, more than 10; send at most 5 in one request"
    )
    assert isinstance(outcome[1], bytes)
    assert sum(counted.calls) == 4


def test_what_would_take_too_long_beside_others_is_refused_until_they_are_answered(predictor, triples):
    model, _ = batcher(predictor, Settings(max_levels=2, answer_seconds=100), measured=False)
    model.cost = Known(1.0)
    large, small = asked((triples * 2)[:60]), asked(triples[:2])
    outcome = gather(*(lambda one=one: model.answer(one) for one in (large, large, small)))
    assert [type(one) for one in outcome] == [bytes, Problem, bytes]
    assert outcome[1].status == 429
    assert 50 <= int(outcome[1].headers["Retry-After"]) <= 60
    assert isinstance(gather(lambda: model.answer(large))[0], bytes)


def test_what_fails_fails_for_those_who_asked_and_no_one_else(predictor, triples):
    model, counted = batcher(predictor, error=RuntimeError("broken"))
    outcome = gather(*(lambda: model.answer(asked(triples[:2])) for _ in range(3)))
    assert [str(error) for error in outcome] == ["broken"] * 3
    counted.error = None
    assert gather(lambda: model.answer(asked(triples[:2])))[0].startswith(b'{"confidence":0.9')


def test_too_many_waiting_are_refused(predictor, triples):
    model, _ = batcher(predictor, Settings(max_waiting=10, max_levels=2))
    outcome = gather(*(lambda: model.answer(asked(triples[:4])) for _ in range(4)))
    refused = [one for one in outcome if isinstance(one, Problem)]
    assert [problem.status for problem in refused] == [429, 429]
    # and once they are answered there is room again
    assert isinstance(gather(lambda: model.answer(asked(triples[:4])))[0], bytes)


def test_an_answer_that_takes_too_long_is_not_waited_for(predictor, triples):
    model, counted = batcher(predictor, Settings(answer_seconds=0.05, max_levels=2))
    counted.slow = 0.3  # slower than it was when it was measured
    outcome = gather(lambda: model.answer(asked(triples, (0.7,))))
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


def test_cost_is_learned_and_errs_on_the_slow_side():
    cost = Cost()
    assert not cost.known
    assert cost.seconds(10, 2) == 20 * GUESS
    cost.learn(5, 1, 0.005)  # a fixed cost of 4 ms, 0.2 ms a triple
    assert cost.seconds(10, 1) == pytest.approx(0.01)
    assert cost.seconds(10, 4) == pytest.approx(0.04)  # more levels than were measured
    cost.learn(1000, 1, 0.204)
    assert cost.seconds(10_000, 1) == pytest.approx(2.04)
    assert cost.seconds(5, 1) == pytest.approx(0.005)
    assert cost.seconds(2, 1) == pytest.approx(0.008)  # no more than the call of 4 to 7
    assert cost.seconds(0, 1) == 0


def test_one_slow_call_is_forgotten():
    cost = Cost()
    cost.learn(512, 1, 50.0)
    cost.learn(256, 1, 0.01)
    assert cost.seconds(512, 1) == pytest.approx(0.02)
    for _ in range(40):
        cost.learn(512, 1, 0.012)
    assert cost.seconds(512, 1) < 0.02


def test_slices_are_as_large_as_the_time_allows():
    cost = Cost()
    cost.learn(1, 1, 1e-3)
    assert cost.triples(4e-3, 1) == 4
    cost.learn(4, 1, 1.1e-3)
    assert cost.triples(4e-3, 1) == 8
    cost.learn(1 << 20, 1, 1e-9)
    assert cost.triples(4e-3, 1) == 8
    cost.learn(8, 1, 1e-9)
    assert cost.triples(4e-3, 1) == LARGEST
