"""Reports: one HTML page that stands alone, of a run or of a reproduction of the paper.

>>> write_report("run")                 # doctest: +SKIP
PosixPath('run/report.html')
"""

from __future__ import annotations

from unkgcp.evaluation.report.reproduction_page import write_report

__all__ = ["write_report"]
