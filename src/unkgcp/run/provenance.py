"""How a run came to be, and where its data came from: enough to load them again and to notice that they changed.

These are plain records, without the data themselves; `unkgcp.run.folder` adds what it knows of the files of a run.

>>> record = describe("facts.tsv", dataset, seed=0, options={"header": True})     # doctest: +SKIP
>>> reload(record, "run").splits.test                                            # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.training.model import Model

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
    path, parts = Path(data), dataset.splits.parts()
    counts = dict(zip(parts, map(len, parts.values()), strict=True))
    plain = {name: asdict(value) if is_dataclass(value) else value for name, value in options.items()}  # type: ignore[arg-type]
    return {
        "name": dataset.name,
        "argument": str(path.resolve()) if path.exists() and _is_path(data) else data,
        "seed": seed,
        "options": {name: value for name, value in plain.items() if value is not None},
        "hashes": dict(dataset.hashes),
        "facts": counts,
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


def load_named(data: str, record: Mapping[str, Any], seed: int, reading: Mapping[str, Any]) -> Dataset:
    """Data that a user names for a run; one file is split as the run's own was, so that the same file gives
    the same test facts.
    """
    from unkgcp.graph.datasets import load_dataset

    options = record.get("options", {})
    own = {name: options[name] for name in SPLITTING if name in options} if _is_split(data) else {}
    return load_dataset(
        data, seed=record.get("seed", seed), **{"prefixes": prefixes(record), **reading}, **own
    )


def prefixes(record: Mapping[str, Any]) -> dict[str, str] | None:
    """The prefixes of IRIs that a run's data were read with, so that its labels can become IRIs again."""
    found: dict[str, str] | None = record.get("options", {}).get("prefixes")
    return found


def _is_split(data: str) -> bool:
    from unkgcp.graph.datasets import names_one_file

    return data == "demo" or names_one_file(data)


def _is_path(data: str) -> bool:
    from unkgcp.graph.datasets import NAMES

    return data not in NAMES
