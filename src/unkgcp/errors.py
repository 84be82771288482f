"""Errors a person can act on: one sentence that names the file, the line and the remedy."""

from __future__ import annotations

import re
from os import PathLike

_USER = re.compile(r"(?<=://)[^/\s'\"]*@")  # and password, in an address


class InputError(ValueError):
    """What the user gave cannot be used. The command line prints the sentence and exits with status 2.

    The sentence is one line that any terminal can print, whatever labels and names of files it repeats.
    """

    def __init__(self, sentence: str) -> None:
        line = _USER.sub("", " ".join(sentence.splitlines()))
        super().__init__(line.encode("utf-8", "backslashreplace").decode())


def public(address: str | PathLike[str]) -> str:
    """An address as it may be stored and shown: without user, password, query and fragment. A path stays as it is.

    >>> public("https://user:password@host/facts.tsv?X-Signature=abc")
    'https://host/facts.tsv'
    """
    return re.sub(r"(://[^\s?#'\"]*)[?#][^\s'\")]*", r"\1", _USER.sub("", str(address)))


class TrainedFactsWarning(UserWarning):
    """Some calibration facts are training facts of the model; the sentence says how many."""


EXTRAS = {
    "evidence": ("lightgbm", "numba", "matplotlib", "pandas", "fastapi", "uvicorn", "prometheus_client"),
    "train": ("torch", "numba"),
    "ray": ("ray",),
    "pykeen": ("pykeen",),
    "rdf": ("pyoxigraph",),
    "remote": ("fsspec", "aiohttp"),
}
"""Libraries that only some of the package needs, by the extra that brings them."""


def remedy(library: str) -> str:
    """The command that installs a library and what is needed beside it, whether for a checkout or for a wheel.

    >>> remedy("torch")
    'pip install torch numba'
    """
    return f"pip install {' '.join(next(brought for brought in EXTRAS.values() if library in brought))}"


def missing(error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The same error, with a sentence that says how to install what is missing if one of our extras brings it."""
    library = (error.name or "").partition(".")[0]
    if not any(library in brought for brought in EXTRAS.values()):
        return error
    return ModuleNotFoundError(
        f"this needs {library}, which is not installed: {remedy(library)}", name=error.name, path=error.path
    )


def at(path: str | PathLike[str], line: int | None = None) -> str:
    """`file` or `file, line n`, the way every error names a place."""
    return public(path) if line is None else f"{public(path)}, line {line}"
