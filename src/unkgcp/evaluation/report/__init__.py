"""Reports: one HTML page that stands alone, of a run or of a reproduction of the paper.

>>> write_report("run")                 # doctest: +SKIP
PosixPath('run/report.html')
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError
from unkgcp.files import write_text

if TYPE_CHECKING:
    from unkgcp.training.given_model import OwnModel


def write_report(
    directory: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    data: str | None = None,
    confidence: float = 0.9,
    reading: Mapping[str, Any] | None = None,
    model: OwnModel | None = None,
) -> Path:
    """Write the report of a run or of a reproduction; gives its path (`report.html` in the folder).

    The test facts of a run are found as `unkgcp evaluate` finds them: where the run's data were, or those of
    `data`, read with the options `reading`. The same folder gives the same bytes. `model` is that of a run of a model
    of your own, which such a run does not keep.
    """
    from unkgcp.evaluation.figures.style import matplotlib

    matplotlib()  # without it, say so before the work
    directory = Path(directory)
    target = directory / "report.html" if output is None else Path(output)
    if (directory / "summary.json").is_file():
        from unkgcp.evaluation.report.reproduction_page import reproduction_page

        if model is not None:
            raise InputError(f"{directory} is a reproduction, which has models of its own: leave out yours")
        written = reproduction_page(directory)
    else:
        from unkgcp.evaluation.report.run_page import run_page

        written = run_page(directory, data, confidence, dict(reading or {}), model)
    write_text(target, written)
    return target
