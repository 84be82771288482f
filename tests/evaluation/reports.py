"""What the tests of figures and reports stand on: a run full of hostile labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unkgcp.graph.datasets import load_dataset
from unkgcp.run import fit, provenance
from unkgcp.training import TrainConfig

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src="https://outside.example/x.png" onerror="document.title=1">',
    "</style></title></svg><script>fetch('https://outside.example')</script>",
    "$\\frac{1}{",
    'id="sly" #1f2328 url(#x)',
    "\u202eright to left",
    "東京 & «Zürich»",
    "l" * 500,
)


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
