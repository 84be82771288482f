"""`POST /v1/select`: a list of candidates is answered, and chosen from with a bound on the share of wrong ones.

Candidates are answered and placed in slices, beside all other requests (`unkgcp.service.batching`). When the last of
them is placed, `unkgcp.run.choosing` decides, as it does for `Predictor.select` and `unkgcp predict --select`. What it
needs of the calibration facts depends on the condition alone and is kept for the conditions asked for last.

>>> text = await Candidates(predictor, batcher, settings).select(body)                  # doctest: +SKIP
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from unkgcp.conformal.selection import Places
from unkgcp.methods.ranges import Range
from unkgcp.methods.selecting import Selector
from unkgcp.run.choosing import Choice, Chooser
from unkgcp.run.predictor import Predictor
from unkgcp.service.batching import Batcher, Jobs
from unkgcp.service.request_body import Problem, Selecting, to_text
from unkgcp.service.settings import Settings

KEPT = 16  # conditions whose calibration facts stay scored


class Candidates:
    """Chooses among the candidates of a request."""

    def __init__(self, predictor: Predictor, batcher: Batcher, settings: Settings) -> None:
        self._predictor, self._batcher, self._settings = predictor, batcher, settings
        self._jobs = Jobs(settings, 1, "selection")
        self._selectors: OrderedDict[Range, Selector] = (
            OrderedDict()
        )  # touched by the thread of the jobs alone

    async def select(self, body: Selecting) -> bytes:
        """The JSON of the answers, with a p-value for each candidate and whether it is selected."""
        choice = Choice.of(body.condition, body.fdr)
        self._check_time()
        chooser = await self._jobs.run(partial(self._chooser, choice))
        text, places = await self._batcher.place(body.asked, chooser)
        return await self._jobs.run(partial(self._told, body, chooser, text, places))

    def close(self) -> None:
        self._jobs.close()

    def _check_time(self) -> None:
        """Refuse where scoring the calibration facts would take too long, since a thread cannot be stopped."""
        facts, limit, cost = self._predictor.method.size, self._settings.answer_seconds, self._batcher.cost
        if cost.known and (seconds := cost.seconds(facts, 1)) > limit:
            raise Problem(
                422,
                f"to choose, this run scores its {facts:,} calibration facts first, in about {seconds:.0f} seconds, "
                f"more than {limit:g}; use unkgcp predict --select",
            )

    def _chooser(self, choice: Choice) -> Chooser:
        selector = self._selectors.pop(choice.condition, None)
        chooser = Chooser(self._predictor, choice, selector)
        self._selectors[choice.condition] = chooser.selector  # the last is the one asked for last
        if len(self._selectors) > KEPT:
            self._selectors.popitem(last=False)
        return chooser

    def _told(self, body: Selecting, chooser: Chooser, text: bytes, places: Places) -> bytes:
        """The answers with what was chosen: more fields at the end of their JSON object."""
        verdict = chooser.verdict(places, chooser.cuts(chooser.reference.count(places)))
        more = {
            "p_value": verdict.p_value.tolist(),
            **{name: chosen.tolist() for name, chosen in verdict.selected.items()},
            "condition": str(chooser.choice.condition),
            "fdr": body.fdr,
            "guarantee": self._predictor.as_fitted(chooser.promise),
        }
        return text[:-1] + b"," + to_text(more)[1:]
