"""Random parts of a graph: training, validation, calibration and test.

The parts are disjoint as rows and together the whole. They are not stratified: a rare relation
may miss a part.

>>> splits = split(graph, calibration=0.07, test=0.08, seed=0)
>>> fitting, early_stopping = hold_out(splits.train, 0.05, seed=0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unkgcp.errors import InputError
from unkgcp.graph.facts import Graph, concatenate

CALIBRATION, TEST = 0.07, 0.08


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """The parts of a graph, all over one vocabulary; rows keep the order in which they were read.

    `validation` may have no rows. It is for early stopping and belongs to what a model may look at;
    `calibration` and `test` are not.
    """

    train: Graph
    calibration: Graph
    test: Graph
    validation: Graph

    @property
    def graph(self) -> Graph:
        """All facts: train, validation, calibration, test, one after the other."""
        return concatenate([self.train, self.validation, self.calibration, self.test])

    def parts(self) -> dict[str, Graph]:
        return {
            "train": self.train,
            "validation": self.validation,
            "calibration": self.calibration,
            "test": self.test,
        }


def split(
    graph: Graph,
    *,
    calibration: float = CALIBRATION,
    test: float = TEST,
    validation: float = 0.0,
    seed: int = 0,
    keep_repeats_together: bool = False,
) -> Splits:
    """Divide a graph at random.

    `calibration` and `test` are shares of the whole graph, `validation` is a share of the training part
    that is left: asking for a validation slice changes neither the calibration nor the test facts.

    `keep_repeats_together` puts all rows of one triple into the same part. Without it a triple that is listed
    several times can be in train and in test, and the test is then partly a test of memory. With it triples are
    exchangeable and rows no longer are, since a calibration row has its repeats beside it and a test row has not: of
    m calibration triples with r rows each, a row's coverage at level a may be a (1 - 1/r) / (m + 1) too low.
    """
    _check_shares({"calibration": calibration, "test": test})
    generator = np.random.default_rng(seed)
    keys = graph.keys if keep_repeats_together else None
    shares = {"calibration": calibration, "test": test}
    calibrating, testing = _draw(len(graph), keys, shares, generator)
    training = ~(calibrating | testing)
    validating = np.zeros(len(graph), dtype=np.bool_)
    if validation:
        _check_shares({"validation": validation})
        rows = np.flatnonzero(training)
        (chosen,) = _draw(
            len(rows), None if keys is None else keys[rows], {"validation": validation}, generator
        )
        validating[rows[chosen]] = True
        training &= ~validating
    return Splits(graph[training], graph[calibrating], graph[testing], graph[validating])


def hold_out(
    graph: Graph, fraction: float, seed: int, keep_repeats_together: bool = False
) -> tuple[Graph, Graph]:
    """(rest, held out): a random `fraction` of the facts set aside."""
    _check_shares({"held-out": fraction})
    keys = graph.keys if keep_repeats_together else None
    (held,) = _draw(len(graph), keys, {"held-out": fraction}, np.random.default_rng(seed))
    return graph[~held], graph[held]


def _check_shares(shares: dict[str, float]) -> None:
    for name, share in shares.items():
        if not 0 < share < 1:
            raise InputError(f"the {name} fraction is {share:g}; it must lie between 0 and 1, both excluded")
    if sum(shares.values()) >= 1:
        listed = " and ".join(f"{share:g} ({name})" for name, share in shares.items())
        raise InputError(f"the fractions {listed} leave nothing for training; their sum must stay below 1")


def _draw(
    n: int, keys: NDArray[np.int64] | None, shares: dict[str, float], generator: np.random.Generator
) -> list[NDArray[np.bool_]]:
    """One mask of shape (n,) for each share; no row is in two of them and some row is in none."""
    wanted = [int(share * n + 0.5) for share in shares.values()]
    masks = _draw_rows(n, wanted, generator) if keys is None else _draw_groups(keys, wanted, generator)
    for name, mask in zip(shares, masks, strict=True):
        if not mask.any():
            raise InputError(
                f"{_facts(n)} cannot be split: the {name} part ({shares[name]:g} of them) would be empty; "
                "give more facts or a larger fraction"
            )
    if sum(int(mask.sum()) for mask in masks) == n:
        raise InputError(
            f"{_facts(n)} cannot be split: nothing is left for training; give more facts or smaller fractions"
        )
    return masks


def _facts(n: int) -> str:
    return "one fact only" if n == 1 else f"{n:,} facts"


def _draw_rows(n: int, wanted: Sequence[int], generator: np.random.Generator) -> list[NDArray[np.bool_]]:
    order = generator.permutation(n)
    masks = []
    start = 0
    for count in wanted:
        mask = np.zeros(n, dtype=np.bool_)
        mask[order[start : start + count]] = True
        masks.append(mask)
        start += count
    return masks


def _draw_groups(
    keys: NDArray[np.int64], wanted: Sequence[int], generator: np.random.Generator
) -> list[NDArray[np.bool_]]:
    """Whole groups of equal keys, drawn in random order, with row counts as near to `wanted` as possible."""
    _, group, size = np.unique(keys, return_inverse=True, return_counts=True)
    waiting = generator.permutation(len(size))
    masks = []
    for count in wanted:
        chosen = _fill(size[waiting], count)
        mask = np.zeros(len(size), dtype=np.bool_)
        mask[waiting[chosen]] = True
        waiting = waiting[~chosen]
        masks.append(mask[group])
    return masks


def _fill(size: NDArray[np.int64], room: int) -> NDArray[np.bool_]:
    """Which groups, taken in the given order and skipping those that do not fit, fill `room` rows: (n,) bool.

    Every round ends at a group that is too large for what is left, so there are at most as many rounds as
    distinct sizes.
    """
    chosen = np.zeros(len(size), dtype=np.bool_)
    left = np.arange(len(size))
    while room > 0:
        left = left[size[left] <= room]
        if not len(left):
            break
        used = np.cumsum(size[left])
        fitting = int(np.searchsorted(used, room, side="right"))
        chosen[left[:fitting]] = True
        room -= int(used[fitting - 1])
        left = left[fitting:]
    if room > 0 and not chosen.all():
        # the smallest group that is left, if one too many is nearer than one too few
        others = np.flatnonzero(~chosen)
        smallest = others[np.argmin(size[others])]
        chosen[smallest] = size[smallest] - room < room
    return chosen
