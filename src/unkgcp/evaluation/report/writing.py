"""From a folder to its report: finds out what the folder is, writes one page into it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unkgcp.evaluation.figures.reproduction import SUMMARY
from unkgcp.evaluation.figures.style import matplotlib
from unkgcp.files import write_text

REPORT = "report.html"


def write_report(
    directory: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    data: str | None = None,
    confidence: float = 0.9,
    reading: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report of a run or of a reproduction; gives its path (`report.html` in the folder).

    The test facts of a run are found as `unkgcp evaluate` finds them: where the run's data were, or those of
    `data`, read with the options `reading`. The same folder gives the same bytes.
    """
    matplotlib()  # without it, say so before the work
    directory = Path(directory)
    target = directory / REPORT if output is None else Path(output)
    if (directory / SUMMARY).is_file():
        from unkgcp.evaluation.report.reproduction import reproduction_page

        write_text(target, reproduction_page(directory))
        return target
    from unkgcp.bundle import Predictor, source
    from unkgcp.evaluation.report.diagnosis import diagnose
    from unkgcp.evaluation.report.run import run_page

    predictor, options = Predictor.load(directory), dict(reading or {})
    record = predictor.provenance.get("data", {})
    if data is not None:
        dataset = source.load_named(data, record, predictor.model.seed, options)
    else:
        dataset = source.reload(record, str(directory), options.get("data_dir"))
    write_text(target, run_page(diagnose(predictor, dataset, confidence)))
    return target
