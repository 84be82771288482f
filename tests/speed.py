"""How long work takes, in a measure that other machines and other work on this one do not change much."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def cpu_seconds(work: Callable[[], object]) -> float:
    """Time of the processor, not of the clock: what else runs on the machine is not counted."""
    start = time.process_time()
    work()
    return time.process_time() - start


def sorting_seconds(n: int) -> float:
    """The yardstick: sorting so many numbers once, stably, which no library does with vector instructions."""
    numbers, times = np.random.default_rng(0).random(n), max(1, 1_000_000 // n)
    return (
        min(cpu_seconds(lambda: [np.sort(numbers, kind="stable") for _ in range(times)]) for _ in range(3))
        / times
    )
