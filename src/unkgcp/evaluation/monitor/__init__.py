"""Watching the promise: is there evidence that new labelled facts are unlike those that a run was calibrated on?

>>> from unkgcp.evaluation.monitor import Monitor
>>> monitor = Monitor(unkgcp.Predictor.load("run"))                          # doctest: +SKIP
>>> monitor.update(triples, confidences).broken                              # doctest: +SKIP
False
"""

from __future__ import annotations

from unkgcp.evaluation.monitor.watch import Look, Monitor

__all__ = ["Look", "Monitor"]
