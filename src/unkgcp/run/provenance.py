"""Where the data of a run came from: enough to load them again, and to notice that they changed.

>>> record = describe("facts.tsv", dataset, seed=0, options={"header": True})     # doctest: +SKIP
>>> reload(record, "run").splits.test                                            # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from unkgcp.errors import InputError, public
from unkgcp.files import ADDRESS

if TYPE_CHECKING:
    from unkgcp.graph.datasets import Dataset
    from unkgcp.training.model import Model

SPLITTING = ("calibration", "test", "hold_out", "symmetric")


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
        "argument": str(path.resolve()) if path.exists() and data not in NAMES else public(data),
        "seed": seed,
        "options": {name: value for name, value in plain.items() if value is not None},
        "hashes": dict(dataset.hashes),
        "facts": dataset.splits.sizes(),
    }


def reload(record: Mapping[str, Any], run: str, data_dir: str | None = None) -> Dataset:
    """The data set of the record of a run; refused if a file is no longer what it was.

    The record may be a stranger's: no address in it is followed, and any error in reading the data is one about it.
    """
    from unkgcp.graph.datasets import load_dataset
    from unkgcp.tabular.columns import Scale

    if "argument" not in record:
        raise InputError(f"{run} does not say where its data are; name them with DATA or --data")
    if ADDRESS.match(record["argument"]):
        raise InputError(
            f"the data of {run} are at an address, and an address in a run is not followed; name it with DATA or --data"
        )
    if not record.get("hashes"):
        raise InputError(f"{run} does not tell the hashes of its data; name them with DATA or --data")
    options = dict(record.get("options", {})) | ({} if data_dir is None else {"data_dir": data_dir})
    try:
        if "scale" in options:
            options["scale"] = Scale(**options["scale"])
        dataset = load_dataset(record["argument"], seed=record.get("seed", 0), **options)
    except (InputError, ImportError, OSError, MemoryError):
        raise
    except Exception as error:  # a stranger's options can cause any error
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"what {run} says of its data is damaged ({why}); name them with DATA or --data"
        ) from error
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
    splitting = {name: options[name] for name in SPLITTING if name in options} if is_split else {}
    return load_dataset(
        data, seed=record.get("seed", seed), **{"prefixes": prefixes(record), **reading}, **splitting
    )


def prefixes(record: Mapping[str, Any]) -> dict[str, str] | None:
    """The prefixes of IRIs that a run's data were read with, so that its labels can become IRIs again."""
    return cast("dict[str, str] | None", record.get("options", {}).get("prefixes"))
