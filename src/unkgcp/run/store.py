"""A run on disk: `run.safetensors`, the one file that is read, beside files for people.

`run.safetensors` is a container (`unkgcp.files`): parameters, labels, calibration and facts as arrays, configuration
and provenance as JSON, one digest over all of it. It is written under a temporary name, loaded once from there, and
takes its place by one rename, so that a reader finds the old run or the new one, whatever happens meanwhile.
`config.yaml`, `metrics.json` and `README.txt` are for people and are never read back.

Everything is checked before anything is answered from it, as if a stranger had written it with a digest that fits:
arrays against the declarations of the classes that store them, settings by the code that uses them.

>>> load("run")["method"].name               # doctest: +SKIP
'unkgcp'
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unkgcp._version import __version__
from unkgcp.errors import InputError
from unkgcp.files import (
    Container,
    Field,
    atomic_path,
    check_fields,
    check_here,
    check_place,
    digest_of,
    joined,
    locked,
    read_container,
    reading,
    under,
    write_container,
    write_text,
)
from unkgcp.graph.facts import Vocabulary
from unkgcp.graph.known_facts import KnownFacts

if TYPE_CHECKING:
    from unkgcp.methods.method import IntervalPredictor
    from unkgcp.training.model import Model

LOG = logging.getLogger(__name__)

RUN, FORMAT, REMEDY = "run.safetensors", "unkgcp run 5", "fit the run again"
CHECKPOINT = ".checkpoint"
ABANDONED = 3600.0
"""Seconds after which a file that a killed writer left is removed."""
PROTOCOLS = ("strict", "paper")
Arrays = dict[str, NDArray[Any]]

SEEN = (
    Field("entities", np.bool_, ("entities",)),
    Field("relations", np.bool_, ("relations",)),
    Field("symmetric", np.bool_, ("relations",)),
)
LABELS = (
    Field("bytes", np.uint8, ("bytes",)),
    Field("offsets", np.int32, ("labels+1",), 0, rising=True),
)
TABLE = (Field("table", np.float32, ("rows", "columns")),)
PROVENANCE = {
    "protocol": str,
    "data": dict,
    "recalibrated": dict,
    "updates": list,
    "held_out_rate": float,
    "times": dict,
}
DATA = {"argument": str, "name": str, "seed": int, "options": dict, "hashes": dict}
"""The types of what a provenance, and the record of the data in it, may say."""

README = """This folder is a run of unkgcp {unkgcp}, written {created}.

run.safetensors   all of the run; this is what unkgcp reads
config.yaml       how it was fitted, to be looked at
metrics.json      how it did on test facts, to be looked at

unkgcp predict {folder} queries.tsv        answers queries
unkgcp report {folder}                     writes report.html
"""


def check_target(folder: str | os.PathLike[str]) -> None:
    """Refuse to write a run where none can be, or over something else: the target must be new, empty or a run."""
    folder = Path(folder)
    check_here(folder, "a run is written on this machine; give a folder here, and copy it from there")
    if folder.is_dir():
        names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".partial-")}
        if names and not names & {RUN, CHECKPOINT}:
            raise InputError(f"{folder} exists and is not a run of unkgcp; give another folder with -o")
    elif folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} is not a folder; give another name with -o")
    check_place(folder / RUN)


def check_run(folder: str | os.PathLike[str]) -> Path:
    """The file of a run; InputError unless the folder is a finished run, as far as its names tell."""
    folder = Path(folder)
    if not folder.is_dir():
        check_here(
            folder, "runs are read from this machine; download the folder, and give the path that it has here"
        )
        raise InputError(
            f"{folder} is no run: there is no such folder; make one with unkgcp fit DATA -o {folder}"
        )
    if not os.path.lexists(folder / RUN):
        if (folder / CHECKPOINT).exists():
            raise InputError(f"{folder} is not finished; continue with unkgcp fit DATA -o {folder} --resume")
        raise InputError(f"{folder} is no run of unkgcp: it has no {RUN}")
    return folder / RUN


def save(
    folder: str | os.PathLike[str], arrays: Arrays, about: Mapping[str, Any], replaces: str | None = None
) -> None:
    """Write a run in one step; one that is there is replaced.

    about: the configuration, provenance and metrics. `replaces` is the digest of the run that must still be there;
    InputError if another program has written meanwhile.
    """
    check_target(folder)
    folder = Path(folder)
    _remove_abandoned(folder)
    made = {"unkgcp": __version__, "created": datetime.now(UTC).isoformat(timespec="seconds")}
    about = {**about, "provenance": {**about["provenance"], **made}}
    about = json.loads(json.dumps(about), parse_constant=lambda name: None)  # null for NaN and infinities
    made_here = not folder.exists()
    try:
        _replace(folder, arrays, about, replaces)
    except BaseException:
        if made_here:
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        raise
    import yaml  # not at import: start-up time

    write_text(folder / "config.yaml", yaml.safe_dump(about["config"], sort_keys=False, allow_unicode=True))
    write_text(folder / "metrics.json", json.dumps(about["metrics"], indent=2, ensure_ascii=False) + "\n")
    write_text(folder / "README.txt", README.format(**made, folder=folder.name or "run"))


def _replace(folder: Path, arrays: Arrays, about: Mapping[str, Any], replaces: str | None) -> None:
    """Write the file of a run under a temporary name, load it once, and put it in its place."""
    # between two writers that replace the same run, the second must see what the first wrote
    with locked(folder / RUN), atomic_path(folder / RUN) as path:
        write_container(path, FORMAT, arrays, about)
        container = read_container(path, FORMAT, REMEDY)
        with reading(folder / RUN, "this run cannot be written, and nothing was replaced"):
            _unpacked(container)
        if replaces is not None and digest_of(check_run(folder), REMEDY) != replaces:
            raise InputError(f"{folder} was written by another program meanwhile; do it again")


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of writers that were killed."""
    for left in folder.glob(f".partial-*{Path(RUN).suffix}"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()


def arrays_of(
    models: Mapping[str, Model],
    method: IntervalPredictor,
    negative: IntervalPredictor | None,
    aside: KnownFacts | None,
) -> Arrays:
    """All arrays of a run, by names that begin with the part of the run that they belong to."""
    model = models["model"]
    stored = {"facts": model.facts, "aside": aside}
    return joined(
        {
            "labels/entities": _label_arrays(model.vocabulary.entities),
            "labels/relations": _label_arrays(model.vocabulary.relations),
            "seen": {
                "entities": model.seen_entities,
                "relations": model.seen_relations,
                "symmetric": model.vocabulary.symmetric,
            },
            "tables": joined({name: one.tables for name, one in models.items()}),
            "calibration": method.arrays(),
            "nonfacts": method.nonfact_arrays(),
            "negatives": {} if negative is None else negative.arrays(),
            **{name: facts.arrays() for name, facts in stored.items() if facts is not None},
            **model.arrays(),
        }
    )


def _label_arrays(labels: pa.StringArray) -> Arrays:
    """Labels as the bytes of all of them and where each begins: (bytes,) and (labels + 1,)."""
    _, ends, content = labels.buffers()
    if ends is None or not len(labels):
        return {"bytes": np.zeros(0, np.uint8), "offsets": np.zeros(len(labels) + 1, np.int32)}
    offsets = np.frombuffer(ends, np.int32)[labels.offset : labels.offset + len(labels) + 1]
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    return {"bytes": data[offsets[0] : offsets[-1]], "offsets": offsets - offsets[0]}


def _labels(arrays: Arrays) -> pa.StringArray:
    check_fields(arrays, LABELS)
    data, offsets = arrays["bytes"], arrays["offsets"]
    if offsets[0] != 0 or offsets[-1] != len(data):
        raise ValueError("the labels do not add up to their bytes")
    labels = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))
    labels.validate(full=True)
    if len(labels.unique()) < len(labels):
        raise ValueError("a label stands twice in a vocabulary, so it has no one id")
    return labels


def load(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of `Predictor` from a run; InputError if it is damaged or foreign."""
    start, path = time.monotonic(), check_run(folder)
    container = read_container(path, FORMAT, REMEDY)
    with reading(path, REMEDY):
        arguments = _unpacked(container)
    method, seconds = arguments["method"], time.monotonic() - start
    LOG.info(
        "%s: a run of %s, %s calibration facts: took %.2f s", folder, method.name, f"{method.size:,}", seconds
    )
    return {**arguments, "folder": Path(folder)}


def _unpacked(container: Container) -> dict[str, Any]:
    """The arguments of the `Predictor` that a container holds; any error if it holds none."""
    json.dumps(container.about, allow_nan=False)  # ValueError for a number that is not finite
    config, provenance = container.about["config"], container.about["provenance"]
    _check_types(provenance, PROVENANCE)
    _check_types(provenance.get("data", {}), DATA)
    if (
        provenance.get("protocol", "strict") not in PROTOCOLS
        or not 0 < provenance.get("held_out_rate", 0.5) < 1
    ):
        raise ValueError("its protocol or the share of facts that it holds out is none that there is")
    part: dict[str, Arrays] = {}
    for name, array in container.arrays.items():
        part.setdefault(name.partition("/")[0], {})[name.partition("/")[2]] = array
    vocabulary = Vocabulary(
        *(_labels(under(f"{kind}/", part["labels"])) for kind in ("entities", "relations"))
    )
    sizes = {"entities": len(vocabulary.entities), "relations": len(vocabulary.relations)}
    check_fields(part["seen"], SEEN, **sizes)
    vocabulary = replace(vocabulary, symmetric=part["seen"]["symmetric"])
    models = _models(config, part, vocabulary)
    kept = {
        name: KnownFacts.stored(part[name], **sizes)
        for name in ("facts", "stopping", "aside")
        if name in part
    }
    models["model"] = replace(models["model"], facts=kept.get("facts"), stopping=kept.get("stopping"))
    from unkgcp.methods import restore
    from unkgcp.methods.method import numbered

    settings = (config["method"], config["options"], models)
    method = restore(*settings, part["calibration"])
    if method.asks_model and config["training"]["model"] == "none":
        raise ValueError(f"there is no model, which the method {method.name} needs")
    if "nonfacts" in part:
        from unkgcp.methods.open_world import restore_open_world  # it loads the evidence room

        method = restore_open_world(method, part["nonfacts"])
    return {
        "model": models["model"],
        "method": method,
        "negative": restore(*settings, part["negatives"]) if "negatives" in part else None,
        "quantiles": numbered(models, "quantile", float),
        "provenance": provenance,
        "metrics": container.about["metrics"],
        "aside": kept.get("aside"),
        "digest": container.digest,
    }


def _check_types(record: Any, types: Mapping[str, type]) -> None:
    """ValueError unless a record is one, and what it says of these names is of these types."""
    if type(record) is not dict:
        raise ValueError("what it says of where it came from is no record")
    for name, kind in types.items():
        if name in record and type(record[name]) is not kind:
            raise ValueError(f"its {name} is {json.dumps(record[name])[:40]}")


def _models(config: dict[str, Any], part: dict[str, Arrays], vocabulary: Vocabulary) -> dict[str, Model]:
    from unkgcp.training.model import Model, restored_models

    tables, kind = part.get("tables", {}), Model
    for table in tables.values():
        check_fields({"table": table}, TABLE)
    stored = (config, tables, vocabulary, (part["seen"]["entities"], part["seen"]["relations"]))
    if config["training"]["model"] == "given":
        from unkgcp.training.given_model import restored_given

        return restored_given(*stored, part["given"])
    if config["training"]["model"].startswith("pykeen:"):
        from unkgcp.training.pykeen_models import PykeenModel

        kind = PykeenModel
    return restored_models(*stored, kind)
