"""What a call of the model costs, learned from the calls themselves.

Methods differ a thousandfold: a triple takes a microsecond with `unkgcp` and milliseconds with `cv+` over many facts.
The number of triples therefore says little about the work that a request makes; the seconds of earlier calls do.

>>> cost = Cost()
>>> cost.learn(triples=64, levels=1, seconds=0.01)
>>> round(cost.seconds(640, 1), 6), cost.triples(0.05, 1)
(0.1, 256)
"""

from __future__ import annotations

from threading import Lock

NEW = 0.25  # weight of the latest call in a running mean
GUESS = 1e-3  # seconds for a triple at one level before anything was measured: rather too slow than too quick


class Cost:
    """Seconds for a triple, by the number of levels and the size of the call, each a running mean.

    A call has a fixed cost beside that of its triples, so that a triple of a large call is the cheaper one. Whatever
    was not measured is taken from smaller calls, or from more levels, and thus rather too high: a slow first
    measurement, for example while something is compiled, is corrected by the next call of any smaller size.
    """

    def __init__(self) -> None:
        # levels -> size of a call, as the power of two that is at most that -> seconds for a triple
        self._rates: dict[int, dict[int, float]] = {}
        self._lock = Lock()

    @property
    def known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._rates)

    def learn(self, triples: int, levels: int, seconds: float) -> None:
        """A call with so many triples and levels took so long."""
        if triples < 1:
            return
        with self._lock:
            rates = self._rates.setdefault(levels, {})
            size, rate = _floor(triples), seconds / triples
            rates[size] = rate if size not in rates else rates[size] + NEW * (rate - rates[size])

    def seconds(self, triples: int, levels: int) -> float:
        """How long a call will take, rather too long than too short."""
        if triples < 1:
            return 0.0
        with self._lock:
            if not self._rates:
                return GUESS * triples * levels
            return min(
                # as many levels more as there are: no method takes more than that many times longer
                _seconds(rates, triples) * max(1.0, levels / measured)
                for measured, rates in ([(levels, self._rates[levels])] if levels in self._rates
                                        else self._rates.items())
            )  # fmt: skip

    def triples(self, seconds: float, levels: int) -> int:
        """How many triples can be answered in that time, as a power of two; at least one."""
        triples = 1
        while triples < LARGEST and self.seconds(2 * triples, levels) <= seconds:
            triples *= 2
        return triples


LARGEST = 1 << 16  # triples of one call: its memory stays small


def _floor(triples: int) -> int:
    return 1 << (triples.bit_length() - 1)


def _seconds(rates: dict[int, float], triples: int) -> float:
    below = [rate for size, rate in rates.items() if size <= triples]
    if below:
        return triples * min(below)
    smallest = min(rates)  # a larger call took no less than a smaller one will
    return 2 * smallest * rates[smallest]
