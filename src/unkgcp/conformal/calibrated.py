"""What a calibration can say of itself: its size, its groups, its scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unkgcp.conformal.answers import Calibration
from unkgcp.conformal.scores import Recipe, Score


class Calibrated:
    """The read-only side of `SplitConformal`; a RuntimeError where nothing has been calibrated yet."""

    score: Score | Recipe | None
    _calibration: Calibration | None = None

    @property
    def calibration_scores(self) -> NDArray[np.floating[Any]]:
        """The scores of all calibration points, upwards: (l,)."""
        return self._calibrated().ranking.pooled().scores

    @property
    def grouped(self) -> bool:
        """Whether there were groups at calibration."""
        return self._calibrated().groups is not None

    @property
    def group_sizes(self) -> dict[Any, int]:
        """The number of calibration points of each group that has any."""
        calibration = self._calibrated()
        known = [] if calibration.groups is None else calibration.groups.tolist()
        return dict(zip(known, calibration.ranking.sizes.tolist(), strict=False))

    @property
    def learned(self) -> bool:
        """Whether the score was learned from a part of the calibration points; not so where they were too few."""
        return isinstance(self.score, Recipe) and hasattr(self._calibrated().score, "arrays")

    @property
    def takes_kind(self) -> bool:
        """Whether queries come with a kind: the score was learned with one."""
        return getattr(self._calibrated().score, "kinds", None) is not None

    @property
    def size(self) -> int:
        """The number l of calibration points that are ranked; those that taught the score are not among them."""
        return int(self._calibrated().ranking.offsets[-1])

    def _calibrated(self) -> Calibration:
        if self._calibration is None:
            raise RuntimeError("call calibrate before asking for intervals")
        return self._calibration
