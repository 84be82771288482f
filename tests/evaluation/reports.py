"""What the tests of figures and reports stand on: an invented summary, and a run full of hostile labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from unkgcp.graph.datasets import load_dataset
from unkgcp.run import fit, provenance
from unkgcp.training import TrainConfig

LEVELS = [0.8, 0.85, 0.9, 0.95]
PARTS = ("positive", "negative", "overlap_free", "combined_positive", "combined_negative")
HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src="https://outside.example/x.png" onerror="document.title=1">',
    "</style></title></svg><script>fetch('https://outside.example')</script>",
    "$\\frac{1}{",
    'id="sneaky" #1f2328 url(#x)',
    "\u202eright to left",
    "東京 & «Zürich»",
    "l" * 500,
)


def summary(
    models: tuple[str, ...] = ("ukge", "passleaf", "beurre"), data: str = "cn15k", strict: bool = False
) -> dict[str, Any]:
    """A summary of a reproduction of one data set, in the schema that `unkgcp reproduce` writes."""
    generator = np.random.default_rng(0)
    return {
        "format": 1,
        "title": "A <b>small</b> reproduction",
        "cells": [
            *(_cell("paper", data, model, generator) for model in models),
            *(_cell("strict", data, model, generator) for model in models if strict),
        ],
        "paper": {
            "table1": {data: {"ukge": {"cp": {"coverage": [0.9, 0.002], "sharpness": [0.84, 0.001]}}}},
            "table2": {data: {"ukge": {"mse": 0.24, "mae": 0.41}}},
            "table3": {},
            "statistics": {data: {"entities": 15_000, "relations": 36}},
        },
        "checks": [
            {"name": "a", "title": "Width <grows>", "holds": True, "result": "In all."},
            {"name": "b", "title": "Sharper", "holds": False, "result": "In 2 of 3."},
            {"name": "c", "title": "Linear", "holds": None, "result": "Not measured."},
        ],
        "statistics": {data: {"entities": 15_000, "relations": 37, "train": 9, "calibration": 4, "test": 5}},
        "scaling": None,
    }


def write_summary(folder: Path, **choice: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps(summary(**choice)))
    return folder


def _cell(protocol: str, data: str, model: str, generator: np.random.Generator) -> dict[str, Any]:
    methods = {"fpi": (-0.1, 0.6), "qr": (-0.3, 0.4), "cp": (0.0, 0.5), "unkgcp": (0.002, 0.42)}
    if model == "passleaf":
        del methods["qr"]

    def curve(off: float, width: float) -> dict[str, Any]:
        return {
            "coverage": {"mean": [level + off for level in LEVELS], "sd": [0.003] * 4},
            "sharpness": {"mean": [width * level for level in LEVELS], "sd": [None] * 4},
        }

    def errors() -> dict[str, Any]:
        widths = generator.random(30).tolist()
        return {
            "edges": np.linspace(0, 0.9, 31).tolist(),
            "count": (900 // np.arange(1, 31)).tolist(),
            "predictors": {method: {"width": [*widths[:20], *[None] * 10]} for method in methods},
        }

    def sizes() -> dict[str, Any]:
        columns = ("coverage", "coverage_sd", "sharpness", "sharpness_sd")
        curves = {column: (generator.random(5) / 9 + 0.8).tolist() for column in columns}
        return {"sizes": [10, 20, 40, 80, 133], "predictors": {"cp": curves, "unkgcp": curves}}

    error = {"mse": {"mean": 0.245, "sd": 0.001}, "mae": {"mean": 0.41, "sd": None}}
    return {
        "protocol": protocol, "data": data, "model": model, "seeds": [0, 1], "levels": LEVELS,
        "errors": dict.fromkeys(("positive", "negative", "mixed", "overlap_free"), error),
        "predictors": {m: {part: curve(*at) for part in PARTS} for m, at in methods.items()}
        | ({"unkgcp-plain": {part: curve(0, 0.9) for part in PARTS}} if model == "ukge" else {}),
        "conditionality": {"level": 0.9, "positive": errors(), "negative": errors()},
        "calibration_size": {"level": 0.9, "draws": 10, "positive": sizes(), "negative": sizes()},
        "seconds": {"training": 100.0, "quantiles": 0.0, "scoring": 1.5, "measuring": 2.0}, "machine": "a machine",
        "n": {"test": 5, "overlap_free": 4}, "training": {"best_epoch": [10, 20]},
    }  # fmt: skip


def write_hostile_run(folder: Path, method: str = "unkgcp", protocol: str = "strict") -> Path:
    """A run, trained for a moment, on facts whose entities and relations are called what nobody should trust."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(1)
    entities = [*HOSTILE, *(f"entity {i}" for i in range(30))]
    lines = [
        f"{entities[generator.integers(len(entities))]}\t{HOSTILE[generator.integers(5)]}\t"
        f"{entities[generator.integers(len(entities))]}\t{generator.random():.3f}"
        for _ in range(1500)
    ]
    (folder / "facts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"calibration": 0.2, "test": 0.2, "header": False}
    dataset = load_dataset(folder / "facts.tsv", **options)
    config = TrainConfig(dimension=4, epochs=2, validate_every=1, batch_size=256, negatives=1)
    predictor = fit(dataset, config, method=method, protocol=protocol, device="cpu")
    predictor.provenance["data"] = provenance.describe(str(folder / "facts.tsv"), dataset, 0, options)
    predictor.save(folder / "run")
    return folder / "run"
