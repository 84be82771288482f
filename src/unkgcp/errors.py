"""Errors a person can act on: one sentence that names the file, the line and the remedy."""

from __future__ import annotations

from os import PathLike


class InputError(ValueError):
    """What the user gave cannot be used. The command line prints the sentence and exits with status 2."""


class TrainedFactsWarning(UserWarning):
    """Some calibration facts are training facts of the model; the sentence says how many."""


def at(path: str | PathLike[str], line: int | None = None) -> str:
    """`file` or `file, line n`, the way every error names a place."""
    return f"{path}" if line is None else f"{path}, line {line}"
