"""`provenance.json`: how a run came to be, where its data came from, and the list of its files.

The records of the data are enough to load them again and to notice that they changed. The list has the size and the
SHA-256 of every other file of the run; `unkgcp.run.run_writer` makes it, and `checked` checks all of it.

>>> record = describe("facts.tsv", dataset, seed=0, options={"header": True})     # doctest: +SKIP
>>> reload(record, "run").splits.test                                            # doctest: +SKIP
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.training.model import Model

FORMAT, VERSION = "unkgcp-run", 2
CONFIG, MODEL, VOCABULARY = "config.yaml", "model.safetensors", "vocabulary.parquet"
CALIBRATION, METRICS, PROVENANCE, FACTS = "calibration.npz", "metrics.json", "provenance.json", "facts.npz"
ALWAYS = (CONFIG, VOCABULARY, CALIBRATION, METRICS)
"""The files of every run, beside the list itself."""
NOT_ALWAYS = (MODEL, FACTS)
"""The files that some runs have."""
SPLITTING = ("calibration", "test", "keep_repeats_together")


def fitted(
    dataset: Dataset,
    model: Model,
    protocol: str,
    stopping: str,
    stopped: str | None,
    times: dict[str, float],
) -> dict[str, Any]:
    """How a predictor came to be: `stopping` says what early stopping looked at, `stopped` why training ended early."""
    return {
        "protocol": protocol,
        "data": {"name": dataset.name, "hashes": dict(dataset.hashes)},
        "early_stopping": stopping,
        "stopped": stopped,
        "times": {step: round(seconds, 3) for step, seconds in times.items()},
        "history": model.history,
    }


def describe(data: str, dataset: Dataset, seed: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """What `reload` needs: the argument (a path in full, so that it can be found from elsewhere) and options.

    `options` are those of `load_dataset`.
    """
    from unkgcp.graph.datasets import NAMES

    path = Path(data)
    plain = {name: asdict(value) if is_dataclass(value) else value for name, value in options.items()}  # type: ignore[arg-type]
    return {
        "name": dataset.name,
        "argument": str(path.resolve()) if path.exists() and data not in NAMES else data,
        "seed": seed,
        "options": {name: value for name, value in plain.items() if value is not None},
        "hashes": dict(dataset.hashes),
        "facts": dataset.splits.sizes(),
    }


def reload(record: Mapping[str, Any], run: str, data_dir: str | None = None) -> Dataset:
    """The data set of the record of a run; refused if a file is no longer what it was."""
    from unkgcp.graph.datasets import load_dataset
    from unkgcp.tabular.columns import Scale

    if "argument" not in record:
        raise InputError(f"{run} does not say where its data are; name them with DATA or --data")
    options = dict(record["options"])
    if "scale" in options:
        options["scale"] = Scale(**options["scale"])
    if data_dir is not None:
        options["data_dir"] = data_dir
    dataset = load_dataset(record["argument"], seed=record["seed"], **options)
    for name, digest in record["hashes"].items():
        if dataset.hashes.get(name) != digest:
            raise InputError(
                f"{name} of {record['argument']} has changed since the run was fitted; "
                "restore it, or name the data to use"
            )
    return replace(dataset, name=record["name"])


def load_named(
    data: str | None, record: Mapping[str, Any], run: str, seed: int, reading: Mapping[str, Any]
) -> Dataset:
    """The data that a user names for a run, or the run's own if the user names none.

    One file is split as the run's own was, so that the same file gives the same test facts.
    """
    if data is None:
        return reload(record, run, reading.get("data_dir"))
    from unkgcp.graph.datasets import load_dataset, names_one_file

    options = record.get("options", {})
    is_split = data == "demo" or names_one_file(data)
    own = {name: options[name] for name in SPLITTING if name in options} if is_split else {}
    return load_dataset(
        data, seed=record.get("seed", seed), **{"prefixes": prefixes(record), **reading}, **own
    )


def prefixes(record: Mapping[str, Any]) -> dict[str, str] | None:
    """The prefixes of IRIs that a run's data were read with, so that its labels can become IRIs again."""
    found: dict[str, str] | None = record.get("options", {}).get("prefixes")
    return found


def checked(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """What was found in the list at `path`, once it is certain that this version can read the run.

    InputError, or ValueError with what is wrong with it, unless all that it says is of the right kind.
    """
    if found.get("format") != FORMAT:
        raise ValueError("it is not written by unkgcp")
    if found.get("version") != VERSION:
        raise InputError(
            f"{path} has format version {json.dumps(found.get('version'))[:20]}, this program reads {VERSION}; "
            "fit the run again or use the version of unkgcp that wrote it"
        )
    files = found.get("files")
    if (
        not isinstance(files, dict)
        or set(files) - set(NOT_ALWAYS) != set(ALWAYS)
        or not all(
            isinstance(written, dict) and type(written.get("bytes")) is int and "sha256" in written
            for written in files.values()
        )
    ):
        raise InputError(f"{path} is damaged: it does not list the files of a run; fit the run again")
    _check_data(found.get("data", {}))
    if not isinstance(found.get("recalibrated", {}), dict):
        raise ValueError("what it says of calibration is no record")
    updates, rate = found.get("updates", []), found.get("held_out_rate", 0.5)
    if not isinstance(updates, list) or not all(isinstance(record, dict) for record in updates):
        raise ValueError("what it says of updates are no records")
    if type(rate) is not float or not 0 < rate < 1:
        raise ValueError("the share of facts that it holds out is no number between 0 and 1")
    return found


def _check_data(data: Any) -> None:
    """ValueError unless the record of the data, as `describe` makes it, has entries of the right kind."""
    if not isinstance(data, dict):
        raise ValueError("what it says of the data is no record")
    if "argument" in data and (missing := {"name", "seed", "options", "hashes"} - data.keys()):
        raise ValueError(f"it does not tell the {min(missing)} of the data")
    for name, kind in (("argument", str), ("name", str), ("seed", int), ("options", dict), ("hashes", dict)):
        if name in data and type(data[name]) is not kind:
            raise ValueError(f"the {name} of the data is {json.dumps(data[name])[:40]}")
    prefixes = data.get("options", {}).get("prefixes")
    if prefixes is not None and not (
        isinstance(prefixes, dict) and set(map(type, [*prefixes, *prefixes.values()])) <= {str}
    ):
        raise ValueError(f"the prefixes of the data are {json.dumps(prefixes)[:40]}")
    if data.get("seed", 0) < 0:
        raise ValueError(f"the seed of the data is {data['seed']}")
