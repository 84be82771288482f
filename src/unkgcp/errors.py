"""Errors a person can act on: one sentence that names the file, the line and the remedy."""

from __future__ import annotations

from os import PathLike


class InputError(ValueError):
    """What the user gave cannot be used. The command line prints the sentence and exits with status 2."""


class TrainedFactsWarning(UserWarning):
    """Some calibration facts are training facts of the model; the sentence says how many."""


EXTRAS = {
    "torch": "train",
    "safetensors": "train",
    "numba": "train",
    "llvmlite": "train",
    "lightgbm": "evidence",
    "optuna": "tune",
    "matplotlib": "plot",
    "pslpython": "psl",
    "fastapi": "serve",
    "uvicorn": "serve",
    "ray": "ray",
    "pykeen": "pykeen",
    "pyoxigraph": "rdf",
    "fsspec": "remote",
    "aiohttp": "remote",
}
"""Libraries that only some of the package needs, and the extra that brings each."""


def missing(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, with a sentence that says how to install what is missing if one of our extras brings it."""
    library = (error.name or "").partition(".")[0]
    if library not in EXTRAS:
        return error
    return ModuleNotFoundError(
        f"this needs {library}, which is not installed: pip install 'unkgcp[{EXTRAS[library]}]'",
        name=error.name,
        path=error.path,
    )


def at(path: str | PathLike[str], line: int | None = None) -> str:
    """`file` or `file, line n`, the way every error names a place."""
    return f"{path}" if line is None else f"{path}, line {line}"
