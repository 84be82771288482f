"""CV+ over triples: intervals for graphs too small to spare calibration facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.cross import CrossConformal, guaranteed
from unkgcp.conformal.ranks import Confidence, exact, rank
from unkgcp.errors import InputError
from unkgcp.files import Field, check_fields
from unkgcp.graph.facts import Graph, Triples
from unkgcp.methods import register
from unkgcp.methods.intervals import Floats
from unkgcp.methods.method import IntervalPredictor, Scorer, numbered

SCORES = {"cp": "residual", "unkgcp": "entropy"}
FIELDS = (Field("residuals", np.float64, ("facts",), 0), Field("folds", np.int64, ("members",), 1))
"""What a calibration stores: the scores of all folds, one fold after the other, and how many each has."""


@register
class CrossConformalIntervals(IntervalPredictor):
    """CV+: K models, each trained without one fold of the facts; every fact trains and calibrates.

    `members` are these models, `base` the nonconformity (`cp` or `unkgcp`). Facts to calibrate on are all that the
    members were trained on; `fold` (n,) says of each, in the same order, which member was trained without it, and -1
    of those that every member has seen, which are not ranked. Whoever trains the members draws the folds, once
    (`unkgcp.run.fit_folds`); they are needed to calibrate and not afterwards.

    A fact may have an entity that no other fold has. Its member then scores it with the parameters that this entity has
    before training, and it is ranked all the same: the theorem holds for any way to score, as long as facts and
    queries are scored alike. The score shown for a query is that of the model trained on all facts, and a query that
    is unknown to this model gets the whole range.

    Guarantee: a fact's confidence lies in its interval with probability at least 1 - 2 (1 - confidence), less a small
    term (`unkgcp.conformal.cross.guaranteed`); usually it is close to `confidence`. It is an average over all queries,
    unknown ones among them. Assumption: facts and query are exchangeable, and training treats its facts alike.
    """

    name: str = "cv+"
    guarantee: str = (
        "coverage of at least 1 - 2 (1 - level) in the worst case, usually close to the level, "
        "for facts exchangeable with those it was fitted on"
    )
    needs: tuple[str, ...] = ("members",)
    order_free: bool = False

    cross: CrossConformal

    def __init__(
        self, members: Sequence[Scorer], base: str = "unkgcp", fold: NDArray[np.integer] | None = None
    ) -> None:
        if base not in SCORES:
            raise InputError(f"cv+ goes with {' or '.join(SCORES)}, not with {base!r}")
        if len(members) < 2:
            raise InputError(f"cv+ needs at least 2 models, each without one fold, not {len(members)}")
        self.members, self.base, self.fold = list(members), base, fold

    def options(self) -> dict[str, Any]:
        return {"base": self.base}

    def models(self) -> dict[str, Scorer]:
        return {**super().models(), **{f"member/{k}": member for k, member in enumerate(self.members)}}

    @classmethod
    def made_of(cls, models: Mapping[str, Scorer]) -> dict[str, Any]:
        return {"members": list(numbered(models, "member", int).values())}

    def calibrate(self, model: Scorer, facts: Graph) -> Self:
        """Rank every fact with the member that was trained without it; see the class for which facts these are."""
        fold = self.fold
        if fold is None or fold.shape != (len(facts),):
            folds_known = "nothing" if fold is None else f"{len(fold):,} folds"
            raise InputError(
                f"cv+ is told {folds_known} for {len(facts):,} facts; give all facts that its models were trained "
                "on, and fold, which says of each what model was trained without it"
            )
        ranked = np.bincount(fold[fold >= 0])
        if len(ranked) != len(self.members) or not ranked.all():
            raise InputError(
                f"cv+ has {len(self.members)} models, but {np.count_nonzero(ranked)} folds of facts"
            )
        prediction = np.zeros(len(facts))
        for k, member in enumerate(self.members):
            rows = np.flatnonzero(fold == k)
            prediction[rows] = member.score(facts.head[rows], facts.relation[rows], facts.tail[rows])
        self.cross = CrossConformal(SCORES[self.base]).calibrate(prediction, facts.confidence, fold)
        self.model, self.size = model, self.cross.size
        self.kind_counts = np.array([self.size, 0, 0, 0])
        return self

    def calibration_facts(self) -> Graph:
        raise InputError(
            "a cv+ run calibrates with the facts that it was trained on, and no bound on the share of wrong ones is "
            "known for such; fit a run with calibration facts of its own (another --method)"
        )

    def _calibrate(self, score: Floats, facts: Graph) -> None:
        raise NotImplementedError("cv+ ranks facts with its members, not with the score of one model")

    def _ends(self, score: Floats, triples: Triples, levels: list[Fraction]) -> Floats:
        guess = np.stack([member.score(*triples) for member in self.members], axis=1).astype(np.float64)
        # at level 0 the answer is the smallest set there is, that of the lowest rank
        lowest = Fraction(1, self.size + 1)
        ends = self.cross.interval(guess, [max(level, lowest) for level in levels])
        crossed = ends[:, 0] > ends[:, 1]
        rows = np.flatnonzero(crossed.any(axis=1))
        if len(rows):
            core = self.cross.core(guess[rows])
            ends[rows] = np.where(crossed[rows, None], core[:, None, None], ends[rows])
        return ends

    def caution(self, confidence: Confidence) -> str | None:
        level = exact(confidence)
        if level == 1:
            return None
        if rank(level, self.size) > self.size:
            return f"{self.size:,} facts are too few for confidence {float(level)}: every interval is the whole range"
        least = guaranteed(level, self.size, len(self.members))
        return (
            f"cv+ with {len(self.members)} folds of {self.size:,} facts: at confidence {float(level)} coverage is "
            f"guaranteed to be at least {least:.3f}, usually it is close to {float(level)}"
        )

    def _arrays(self) -> dict[str, NDArray[Any]]:
        sizes = np.array([len(part) for part in self.cross.residuals], np.int64)
        return {"residuals": np.concatenate(self.cross.residuals), "folds": sizes}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        check_fields(arrays, FIELDS, facts=self.size, members=len(self.members))
        residuals, sizes = arrays["residuals"], arrays["folds"]
        if sizes.sum() != self.size:
            raise ValueError("the scores of the folds do not match the models")
        self.cross = CrossConformal(SCORES[self.base])
        self.cross.residuals = [np.sort(part) for part in np.split(residuals, np.cumsum(sizes)[:-1])]
