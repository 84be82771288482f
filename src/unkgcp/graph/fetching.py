"""Download of the benchmark data sets, verified file by file.

A file is accepted only if its git blob id is the published one. A download that was cut off starts again from the
beginning: no file has more than 7 MB. `unkgcp.graph.datasets` reads the files.

>>> fetch("ppi5k", data_dir="data")          # -> data/ppi5k/{train,val,test,test_with_neg,softlogic}.tsv
"""

from __future__ import annotations

import hashlib
import http.client
import os
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from unkgcp._version import __version__
from unkgcp.errors import InputError, public
from unkgcp.files import atomic_path, check_place
from unkgcp.graph.datasets import cache_folder
from unkgcp.progress import Progress, Silent

UKGE = "https://raw.githubusercontent.com/stasl0217/UKGE/5049b84501657abc44c36dd7d2db5f8519e5ee8f/data"
BEURRE = "https://raw.githubusercontent.com/stasl0217/beurre/374b724008d1a215a0c07006528697bc7f6dcad4/data"

LARGEST = 1 << 26  # bytes; no official file is near it, a server that never stops is cut off there
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class FetchError(RuntimeError):
    """A download failed or was refused: not the user's input, but something they can act on."""


# The git blob id of each file. NL27k's official test_with_neg.tsv uses ids where the other files use names; the tables
# that join the two (.csv) were published with a later paper of the same authors.
OFFICIAL: dict[str, dict[str, str]] = {
    "cn15k": {
        "train.tsv": "8f6ffded2c097ef2014cdbd387e10fcaf46ca9ff",
        "val.tsv": "acc77e6f762142b9d4f569cc17a7bf7da68c8560",
        "test.tsv": "27c6036baa2a535622c289bf2650be0ffbb5facf",
        "test_with_neg.tsv": "e30803e69c07133c47769587939f5eb67eec4835",
        "softlogic.tsv": "cc703b59ae3759548b8601f61fc744354c2ec7b3",
    },
    "nl27k": {
        "train.tsv": "56a3ba485a1f32363b6bcb91791c1fedd3fa10f0",
        "val.tsv": "5a320a3da58aa530d0989b26d6a4e8135dbdeaaa",
        "test.tsv": "56d444ca5b683e569a1d974e49b137fd8c19e5ac",
        "test_with_neg.tsv": "c6a4e740e2852dd9e97c15a39974665a01173853",
        "softlogic.tsv": "30357b65ef50e7273127c1629368eae092261df2",
        "entity_id.csv": "962b0285d8582159f99d02295190c8228cfe2e27",
        "relation_id.csv": "2a3f7baa3c4a39a65b55eaf9ca0537aefad0f3bc",
    },
    "ppi5k": {
        "train.tsv": "18b88239bcfd133e53fd80872ffdf635340d3cba",
        "val.tsv": "c4f64909001d9a737ab7c8a576e0d7410c4e7c24",
        "test.tsv": "795d1cd3fad2148348dafc2a721e4e2afe5991d3",
        "test_with_neg.tsv": "300dbc2b9162f6194d7fe3f2833e8707b0571d93",
        "softlogic.tsv": "79d8cd083d5b50e8e51ad51d15c1043e0827468b",
    },
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try: seconds without a byte, attempts a file, seconds before the second one."""

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0  # doubled after every attempt


def fetch(
    name: str,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    url: str | None = None,
    patience: Patience = Patience(),
    progress: Progress = Silent(),  # noqa: B008 - stateless
) -> Path:
    """Bring the official files of a benchmark into `data_dir` (by default the user's cache): its folder.

    `url` names a mirror: the files are then taken from `url/<name>/<file>`. Files that are there and right
    are kept, so a second call only verifies; a file that is there and differs is left alone and the call
    refused.
    """
    if name not in OFFICIAL:
        raise InputError(
            f"there is nothing to fetch under the name {public(name)!r}; the names are {', '.join(OFFICIAL)}"
        )
    if url is not None and urlsplit(url).scheme not in ("http", "https"):
        raise InputError(
            f"{public(url)} is no http or https address; give one that {name}/train.tsv can be appended to"
        )
    folder, official = Path(cache_folder() if data_dir is None else data_dir) / name, OFFICIAL[name]
    check_place(folder / "train.tsv")
    missing = _missing(folder, official)
    for position, file in enumerate(missing, len(official) - len(missing)):
        progress.update(position, file)
        base = url or (BEURRE if file.endswith(".csv") else UKGE)
        content = _fetch_file(f"{base.rstrip('/')}/{name}/{file}", official[file], patience)
        with atomic_path(folder / file) as path:
            path.write_bytes(content)
    progress.update(len(official), "all files verified")
    return folder


def _missing(folder: Path, blobs: dict[str, str]) -> list[str]:
    """The files that are not there yet. One with other content is the user's own, and an error."""
    there = [file for file in blobs if (folder / file).exists()]
    for file in there:
        if blob_id((folder / file).read_bytes()) != blobs[file]:
            raise InputError(
                f"{folder / file} is there but is not the official file; "
                "move it away or choose another folder with --data-dir"
            )
    return [file for file in blobs if file not in there]


def blob_id(content: bytes) -> str:
    """The id that git gives the content of a file: SHA-1 of `blob <bytes>`, a zero byte and the content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _fetch_file(source: str, blob: str, patience: Patience) -> bytes:
    """The content of one file, verified."""
    problem = ""
    for attempt in range(patience.attempts):
        if attempt:
            time.sleep(patience.pause * 2 ** (attempt - 1))
        try:
            content = _receive(source, patience.timeout)
            if blob_id(content) == blob:
                return content
            problem = f"what came is not all of the published file (git blob id {blob_id(content)}, expected {blob})"
        except HTTPError as error:
            problem = f"the server answered {error.code} {error.reason}"
            if error.code not in PASSING:
                raise FetchError(
                    f"{public(source)} cannot be fetched: {problem}; check the address or --url"
                ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            problem = (
                f"nothing came for {patience.timeout:g} seconds"
                if isinstance(reason, TimeoutError)
                else f"the connection broke ({reason or type(reason).__name__})"
            )
    raise FetchError(
        f"{public(source)} could not be had in {patience.attempts} attempts: {problem}; "
        "try again later or name a mirror with --url"
    )


def _receive(source: str, timeout: float) -> bytes:
    request = Request(source, headers={"User-Agent": f"unkgcp/{__version__}"})
    with urlopen(request, timeout=timeout) as response:
        content: bytes = response.read(LARGEST)
    return content
