# %% [markdown]
# # A backbone and a score of your own
#
# For researchers with an idea: a scoring model in twenty lines, a nonconformity score in ten, both in a
# file outside the package. UnKGCP trains the one, calibrates with the other, and judges both.
#
# You need the package with the extras `train` and `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## The file
#
# A *backbone* is parameter tables and a formula. This one is TransE with a sigmoid: a triple is likely
# where head + relation is near the tail.

# %%
from pathlib import Path

written = Path("mymodule.py").write_text("""
import torch

import unkgcp
from unkgcp.backbones import Backbone, ParameterTable, normal


@unkgcp.register_backbone
class Translation(Backbone):
    name = "translation"

    def tables(self, dimension):
        start = normal(0.0, 0.3)
        return {
            "entity": ParameterTable("entity", dimension, start),
            "relation": ParameterTable("relation", dimension, start),
            "height": ParameterTable("relation", 1, start),
        }

    def value(self, head, relation, tail, model):
        between = head["entity"] + relation["relation"] - tail["entity"]
        return torch.sigmoid(relation["height"][..., 0] - between.norm(dim=-1))
""")

# %% [markdown]
# ## From the command line
#
# `--model module:Class` trains it like any other model. A part of the demo graph and a few epochs are
# enough here.

# %%
import numpy as np

import unkgcp

demo = unkgcp.read("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:250]
facts = demo[np.isin(demo.head, often) & np.isin(demo.tail, often)]
unkgcp.write(facts, "facts.tsv")
written = Path("quick.yaml").write_text(
    "dimension: 16\nepochs: 20\nbatch_size: 256\n"
)

# %%
# !unkgcp fit facts.tsv -o run --model mymodule:Translation --method cp --config quick.yaml

# %% [markdown]
# ## A score of your own
#
# A *nonconformity score* is given by the sets that it makes. This one lets intervals reach further down
# than up: an extracted confidence is more often too high than too low. Any score keeps the promise; a
# good one makes narrow intervals.

# %%
from dataclasses import dataclass

from unkgcp.conformal import Score, SplitConformal, register_score
from unkgcp.training import TrainConfig


@register_score
@dataclass(frozen=True)
class MostlyBelow(Score):
    name = "mostly-below"

    def ends(self, prediction, threshold, scale=None):
        return prediction - threshold, prediction + 0.5 * threshold

    def estimate(self, prediction, truth, scale=None):
        return np.where(
            truth < prediction, prediction - truth, 2 * (truth - prediction)
        )


splits = facts.split(calibration=0.25, test=0.25, seed=0)
config = TrainConfig(model="translation", dimension=16, epochs=20, batch_size=256)
model = unkgcp.train(splits.train, config=config, seed=0)


def scores(graph):
    return model.score(graph.head, graph.relation, graph.tail)


levels = np.linspace(0.5, 0.95, 10)
truth = splits.test.confidence
figures = {}
for score in ("residual", "mostly-below"):
    calibrated = SplitConformal(score, bounds=(0, 1)).calibrate(
        scores(splits.calibration), splits.calibration.confidence
    )
    ends = calibrated.interval(scores(splits.test), confidence=levels.tolist())
    inside = (ends[:, 0] <= truth[:, None]) & (truth[:, None] <= ends[:, 1])
    figures[score] = inside.mean(0), (ends[:, 1] - ends[:, 0]).mean(0)
    print(f"{score:13} at 95 %: coverage {inside[:, -1].mean():.3f}", end=", ")
    print(f"mean width {figures[score][1][-1]:.3f}")

# %%
import matplotlib.pyplot as plt

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.axline((0.5, 0.5), slope=1, color="black", linewidth=1)
for name, (coverage, width) in figures.items():
    left.plot(levels, coverage, marker="o", markersize=4, label=name)
    right.plot(levels, width, marker="o", markersize=4)
left.set(xlabel="level", ylabel="coverage")
right.set(xlabel="level", ylabel="mean width")
left.legend(frameon=False)

# %% [markdown]
# Both keep the level, whatever the model is worth. The plain residual is narrower: for these data the idea
# was not a good one, and the figure says so. Which score to use is chosen on held-out *training* facts,
# never on calibration or test facts.
#
# A run keeps the tables of your backbone but not its code: other commands are told the import with
# `UNKGCP_IMPORT=mymodule`. More: [models of your own](../own-models.md).
