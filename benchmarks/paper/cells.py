"""Trains the models of the paper, scores calibration and test triples, and stores the figures of every seed at once.

A cell is a JSON file, cells/PROTOCOL/DATA/MODEL/seed-N.json. The same call again makes what is missing or was made with
other settings, and nothing else. On a GPU the seeds of a block are trained together, and other processes measure a
block while the next one is trained.

There are three thresholds. One comes from calibration facts and judges test facts. One comes from calibration negatives
and judges test negatives, which presumes that a user knows which queries are negatives. One comes from both pooled
(`combined`) and needs no such knowledge.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paper.intervals import Floats, Method, answer, covered, figures, size_curve, width_by_error
from unkgcp.graph.datasets import Dataset, load_dataset
from unkgcp.graph.facts import Graph
from unkgcp.graph.negatives import corrupt
from unkgcp.methods.method import status_codes
from unkgcp.training.config import Member, TrainConfig, config_for, quantiles_of
from unkgcp.training.model import Model
from unkgcp.training.trainer import train_many

LEVELS = (0.8, 0.85, 0.9, 0.95)
LEVEL = 0.9
METHODS = ("fpi", "qr", "cp", "unkgcp")
DRAWS, BINS = 10, 30
# models with quantile regression (PASSLEAF's pseudo-labels are no quantiles) and the most epochs of it
QUANTILE_EPOCHS = {"ukge": 60, "ukge-rect": 60, "beurre": 100}
# the demo graph is for trying the command out, not for figures: these settings are at most so large
DEMO = {"dimension": 32, "epochs": 20, "negatives": 5}
# for each judgement the parts that calibrate its threshold, and the part that is judged
JUDGED = {
    "positive": (("calibration",), "test"),
    "negative": (("calibration_negatives",), "negatives"),
    "combined_positive": (("calibration", "calibration_negatives"), "test"),
    "combined_negative": (("calibration", "calibration_negatives"), "negatives"),
}


@dataclass(frozen=True)
class Plan:
    """Everything asked for; `settings` replace fields of every training configuration."""

    protocol: str
    data: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    device: str
    settings: Mapping[str, Any]

    def config(self, model: str, data: str, quantiles: bool) -> TrainConfig:
        """That of a block's models, or of its quantile models: pinball loss, no negatives, no soft logic."""
        config = config_for(model, data, self.protocol)
        if data == "demo":
            small = {name: min(getattr(config, name), limit) for name, limit in DEMO.items()}
            config = replace(config, **small, batch_size=max(config.batch_size, 512), validate_every=5)
        if quantiles:
            config = replace(
                config,
                epochs=min(config.epochs, QUANTILE_EPOCHS[model]),
                patience=min(config.patience, 20),
                validate_every=min(config.validate_every, 5),
            )
        last = {"negatives": 0, "softlogic_weight": 0.0} if quantiles else {}
        return replace(config, **{**self.settings, **last})


def run(plan: Plan, folder: Path, say: Callable[[str], None]) -> None:
    """Make the cells that are missing in the folder."""
    import torch

    gpu = plan.device.startswith("cuda") or (plan.device == "auto" and torch.cuda.is_available())
    device = torch.cuda.get_device_name() if gpu else f"{os.cpu_count()} cores of {platform.machine()}"
    machine = f"{device}, torch {torch.__version__}, Python {platform.python_version()}"
    with ExitStack() as stack:
        # spawned, since forked processes cannot use what the driver of a GPU has left in memory
        processes = max(1, min(12, (os.cpu_count() or 2) - 2))
        pool = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn"))) if gpu else None
        futures = []
        for data in plan.data:
            dataset = load_dataset(data)
            for model in plan.models:
                block = folder / "cells" / plan.protocol / dataset.name / model.replace(":", ".")
                paths = {seed: block / f"seed-{seed}.json" for seed in range(plan.seeds)}
                prints = {seed: fingerprint(plan, dataset, data, model, seed) for seed in paths}
                missing = [seed for seed, path in paths.items() if stored_fingerprint(path) != prints[seed]]
                for seeds in [missing] if gpu and missing else [[seed] for seed in missing]:
                    say(f"{block.relative_to(folder)}: training {len(seeds)} of {plan.seeds} seeds")
                    for seed, scored in zip(
                        seeds, train_and_score(plan, dataset, data, model, seeds), strict=True
                    ):
                        about = {
                            "protocol": plan.protocol,
                            "data": dataset.name,
                            "model": model,
                            "seed": seed,
                        }
                        about["fingerprint"] = prints[seed]
                        scored["training"]["machine"] = machine
                        task = (paths[seed], about, scored, plan.methods)
                        if pool is None:
                            measure(*task)
                        else:
                            futures.append(pool.submit(measure, *task))
        for future in futures:
            future.result()


def fingerprint(plan: Plan, dataset: Dataset, data: str, model: str, seed: int) -> str:
    """A short digest of all that decides a cell."""
    quantiles = "qr" in plan.methods and model in QUANTILE_EPOCHS
    configs = [plan.config(model, data, which).to_dict() for which in (False, True)[: 1 + quantiles]]
    about = [sorted(dataset.hashes.items()), plan.protocol, seed, configs, sorted(plan.methods)]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]


def stored_fingerprint(path: Path) -> str | None:
    """That of a finished cell; None where there is none, or only the beginning of one."""
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def train_and_score(
    plan: Plan, dataset: Dataset, data: str, model: str, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    """Models, and quantile models where there are any, of these seeds trained together; for each seed what they say."""
    taus = quantiles_of(LEVELS) if "qr" in plan.methods and model in QUANTILE_EPOCHS else []
    config, seconds = plan.config(model, data, False), {}
    models, seconds["training"] = train(plan, dataset, config, [Member(seed) for seed in seeds])
    quantile_models: list[Model] = []
    seconds["quantiles"] = 0.0
    if taus:
        members = [Member(seed, tau) for seed in seeds for tau in taus]
        own = plan.config(model, data, True)
        quantile_models, seconds["quantiles"] = train(plan, dataset, own, members)
    splits, found = dataset.splits, []
    known = np.concatenate([part.keys for part in (splits.train, splits.validation, splits.calibration)])
    for place, seed in enumerate(seeds):
        start = time.monotonic()
        negatives = dataset.negatives
        parts = {
            "calibration": splits.calibration,
            "calibration_negatives": corrupt(splits.calibration, splits.train, seed=seed),
            "test": splits.test,
            "negatives": corrupt(splits.test, splits.train, seed=seed) if negatives is None else negatives,
        }
        own_quantiles = zip(taus, quantile_models[place * len(taus) :], strict=False)
        scored = {
            "scores": {name: known_scores(models[place], part) for name, part in parts.items()},
            "truth": {name: part.confidence for name, part in parts.items()},
            "free": ~np.isin(splits.test.keys, known),
            "quantiles": {
                tau: {name: known_scores(one, parts[name]) for name in ("test", "negatives")}
                for tau, one in own_quantiles
            },
            "statistics": {
                "entities": dataset.graph.n_entities,
                "relations": dataset.graph.n_relations,
                **{name: len(getattr(splits, name)) for name in ("train", "calibration", "test")},
            },
            "training": {
                "best_epoch": min(models[place].history, key=lambda entry: entry["validation"])["epoch"],
                "config": config.to_dict(),
            },
        }
        times = {stage: total / len(seeds) for stage, total in seconds.items()}
        found.append({**scored, "seconds": {**times, "scoring": time.monotonic() - start}})
    return found


def train(
    plan: Plan, dataset: Dataset, config: TrainConfig, members: Sequence[Member]
) -> tuple[list[Model], float]:
    """Trained models, and the seconds that took. The paper stops early on the calibration facts."""
    splits, start = dataset.splits, time.monotonic()
    held_out = splits.validation if len(splits.validation) else None
    models = train_many(
        splits.train,
        members,
        config,
        validation=splits.calibration if plan.protocol == "paper" else held_out,
        softlogic=dataset.softlogic_for(plan.protocol) if config.softlogic_weight else None,
        device=plan.device,
    )
    if any(model.interrupted for model in models):
        raise KeyboardInterrupt
    return models, time.monotonic() - start


def known_scores(model: Model, triples: Graph) -> Floats:
    """Scores, NaN where the model has no training fact of an entity or of the relation: (n,)."""
    score = model.score(triples.head, triples.relation, triples.tail).astype(np.float64)
    score[status_codes(model, triples) != 0] = np.nan
    return score


def measure(path: Path, about: Mapping[str, Any], scored: Mapping[str, Any], wanted: Sequence[str]) -> None:
    """Write the cell of one seed: coverage, width and errors, and the paper's two analyses."""
    start = time.monotonic()
    methods = methods_of(about["data"], about["protocol"], bool(scored["quantiles"]), wanted)
    predictors: dict[str, Any] = {}
    ends_at: dict[tuple[str, str], Floats] = {}
    for name, method in methods.items():
        predictors[name] = {}
        for judgement, (_, part) in JUDGED.items():
            ends, doubt = answer(method, *asked_of(scored, judgement), LEVELS)
            ends_at[name, judgement] = ends[:, :, LEVELS.index(LEVEL)]
            truth = scored["truth"][part]
            predictors[name][judgement] = figures(ends, truth, doubt, LEVELS)
            if judgement == "positive":
                free = scored["free"]
                predictors[name]["overlap_free"] = figures(ends[free], truth[free], doubt[free], LEVELS)
    unknown = {name: int(np.isnan(score).sum()) for name, score in scored["scores"].items()}
    cell = {
        **about,
        "levels": LEVELS,
        "n": {
            **{name: len(score) for name, score in scored["scores"].items()},
            "overlap_free": int(scored["free"].sum()),
            **{f"unknown_{name}": count for name, count in unknown.items()},
        },
        "errors": errors(scored),
        "predictors": predictors,
        "conditionality": {part: conditionality(scored, part, ends_at) for part in ("positive", "negative")},
        "calibration_size": {
            part: calibration_size(scored, part, methods, about["seed"]) for part in ("positive", "negative")
        },
        "statistics": scored["statistics"],
        "training": scored["training"],
        "seconds": {**scored["seconds"], "measuring": time.monotonic() - start},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(cell, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def methods_of(data: str, protocol: str, quantiles: bool, wanted: Sequence[str]) -> dict[str, Method]:
    """Methods by name; `unkgcp-plain` is UnKGCP without the map of the entropy that the paper used on CN15k."""
    mapped = (data, protocol) == ("cn15k", "paper")
    methods = {name: Method(name, mapped and name == "unkgcp") for name in METHODS if name in wanted}
    if not quantiles:
        methods.pop("qr", None)
    if mapped and "unkgcp" in methods:
        methods["unkgcp-plain"] = Method("unkgcp")
    return methods


def asked_of(
    scored: Mapping[str, Any], judgement: str
) -> tuple[tuple[Floats, Floats], Floats, dict[float, Floats]]:
    """(scores, labels) that calibrate, then scores and quantile scores of the part that is judged."""
    sources, part = JUDGED[judgement]
    scores, labels = (
        np.concatenate([scored[what][source] for source in sources]) for what in ("scores", "truth")
    )
    quantiles = {tau: columns[part] for tau, columns in scored["quantiles"].items()}
    return (scores, labels), scored["scores"][part], quantiles


def errors(scored: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Errors of the scores; rows without a score are left out."""
    gap = {name: scored["scores"][name] - scored["truth"][name] for name in ("test", "negatives")}
    sets = {
        "positive": gap["test"],
        "negative": gap["negatives"],
        "mixed": np.concatenate([*gap.values()]),
        "overlap_free": gap["test"][scored["free"]],
    }
    known = {name: values[~np.isnan(values)] for name, values in sets.items()}
    return {
        name: {"mse": float((v**2).mean()), "mae": float(np.abs(v).mean())}
        if len(v)
        else {"mse": None, "mae": None}
        for name, v in known.items()
    }


def conditionality(
    scored: Mapping[str, Any], part: str, ends_at: Mapping[tuple[str, str], Floats]
) -> dict[str, Any]:
    """Width against error in bins of equal width (the paper's Figures 2 and 9-13)."""
    score, truth = (scored[what][JUDGED[part][1]] for what in ("scores", "truth"))
    known = ~np.isnan(score)
    error = np.abs(score - truth)[known]
    low, high = (error.min(), error.max()) if len(error) else (0.0, 1.0)
    edges = np.linspace(low, max(high, low + 1e-9), BINS + 1)
    found = {}
    for (name, judgement), ends in ends_at.items():
        if judgement == part and name in METHODS:
            lower, upper = ends[known].T
            inside = covered(truth[known], lower, upper)
            found[name] = width_by_error(error, upper - lower, inside, edges)
    count = np.histogram(error, edges)[0].tolist()
    return {"edges": edges.tolist(), "count": count, "predictors": found}


def calibration_size(
    scored: Mapping[str, Any], part: str, methods: Mapping[str, Method], seed: int
) -> dict[str, Any]:
    """Figures with fewer calibration facts (the paper's Figures 3 and 14-18)."""
    calibration, score, _ = asked_of(scored, part)
    asked = score, scored["truth"][JUDGED[part][1]]
    curves = {
        name: size_curve(method, calibration, asked, seed, LEVEL, DRAWS)
        for name, method in methods.items()
        if name in ("cp", "unkgcp")
    }
    sizes = [curve.pop("sizes") for curve in curves.values()]
    return {"sizes": sizes[0] if sizes else [], "predictors": curves}
