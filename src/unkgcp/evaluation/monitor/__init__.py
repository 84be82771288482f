"""The monitor: is there evidence that new labelled facts are unlike those that a run was calibrated on?

`promise_monitor` is the test, `monitor_state` keeps one test over many calls, `findings` says what was found.
"""

from __future__ import annotations

from unkgcp.evaluation.monitor.findings import (
    describe,
    monitor_text,
    order_caution,
    sparkline,
)
from unkgcp.evaluation.monitor.monitor_state import watch
from unkgcp.evaluation.monitor.promise_monitor import Monitor

__all__ = [
    "Monitor",
    "describe",
    "monitor_text",
    "order_caution",
    "sparkline",
    "watch",
]
