"""Reports: one HTML page that stands alone, of a run or of a reproduction of the paper.

>>> write_report("run")                 # doctest: +SKIP
PosixPath('run/report.html')
"""

from unkgcp.evaluation.report.writing import write_report

__all__ = ["write_report"]
