# %% [markdown]
# # Comparing methods honestly
#
# For people who choose between methods: which one has the better intervals on *your* data? Coverage
# and width alone cannot tell: a method can be right about easy facts, give up the doubtful ones, and
# look sharp. This page compares four ways of making intervals by four figures together: coverage,
# width, interval score, and coverage of the worst slice. The questions are the hard ones: about pairs that
# no training fact joins yet.
#
# You need the package with the extras `train` and `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## The same facts for all
#
# All methods learn from the same training facts, are calibrated with the same calibration facts and
# judged on the same test facts. Whole pairs are held out (`hold_out="pairs"`): a random split of single
# rows would ask about pairs that the graph already joins, and flatter whoever looks up the other row.
# There are more test facts here than usual, because a worst slice of thirty facts would say little.

# %%
from dataclasses import replace

import numpy as np

import unkgcp
from unkgcp.evaluation import evaluate
from unkgcp.graph import load_dataset
from unkgcp.run import fit, recalibrate
from unkgcp.training import config_for

demo = unkgcp.read("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:300]
unkgcp.write(
    demo[np.isin(demo.head, often) & np.isin(demo.tail, often)], "facts.tsv"
)

dataset = load_dataset(
    "facts.tsv", calibration=0.15, test=0.3, hold_out="pairs", seed=0
)
{part: len(facts) for part, facts in dataset.splits.parts().items()}

# %% [markdown]
# ## Four methods
#
# `cp` and `unkgcp` make an interval around the score of an embedding model. `evidence` reads the
# training graph; it is used with one threshold for all facts and with its default, a promise in [every
# group](../groups.md). Each pair is learned once; `recalibrate` only calibrates again. (The settings of
# the embedding model were tried out on this graph beforehand, which if anything favours `cp` and
# `unkgcp`.)

# %%
config = replace(
    config_for("ukge-rect"),
    dimension=32,
    batch_size=128,
    learning_rate=0.01,
    epochs=60,
    negative_weight=0.02,
    regularization=0.002,
)
runs = {"unkgcp": fit(dataset, config, method="unkgcp", seed=0)}
runs["cp"] = recalibrate(runs["unkgcp"], dataset.splits.calibration, method="cp")
runs["evidence"] = fit(dataset, method="evidence", seed=0)
runs["evidence, one threshold"] = recalibrate(
    runs["evidence"], dataset.splits.calibration, method="evidence", per="none"
)

# %% [markdown]
# ## Four figures

# %%
results = {
    name: evaluate(run, dataset, [0.9])["levels"][0]["positive"]
    for name, run in runs.items()
}

print(f"{'at 90 %':24}  coverage   width   score  worst tenth  worst relation")
for name, found in results.items():
    worst = found["worst"]
    print(
        f"{name:24}{found['coverage']:10.3f}{found['sharpness']:8.3f}"
        f"{found['interval_score']:8.3f}{worst['doubt']:13.3f}{worst['relation']:16.3f}"
    )

# %% [markdown]
# How to read it:
#
# - **Coverage** should be 0.9 or more. With 0.9 asked and this many calibration and test facts, the
#   coverage of a method with one threshold has a standard deviation of about 0.012; smaller differences
#   mean nothing.
# - **Width** alone is easily improved at the cost of the other figures. Compare the two rows of
#   evidence.
# - **Interval score** adds a fine for missing (at 90 % twenty times the distance), so neither width nor
#   misses can be hidden in it: smaller is better. It is the figure to decide by.
# - **Worst tenth**: the facts are cut into tenths by how much the method itself doubts them, and this
#   is the coverage of the tenth that is covered least. If it is well below 0.9, the easy facts keep the
#   promise on average.
#
# Coverage of each tenth, from the facts that a method is surest of to those that it doubts most:

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3.2))
for name, found in results.items():
    tenths = [tenth["coverage"] for tenth in found["slices"]["doubt"]]
    axes.plot(
        range(1, len(tenths) + 1), tenths, marker="o", markersize=4, label=name
    )
axes.axhline(0.9, color="black", linewidth=1)
axes.set(xlabel="tenth of the test facts, by doubt", ylabel="coverage at 90 %")
axes.set(xticks=range(1, 11), ylim=(None, 1.02))
axes.legend(frameon=False, fontsize=8)

# %% [markdown]
# ## Is a difference real?
#
# The methods answered the same test facts, so compare them fact by fact: the mean difference of their
# interval scores, with its standard error.

# %%
facts = dataset.splits.test


def scores(run):
    answers = run.interval(facts, confidence=0.9)
    below = np.maximum(answers.lower - facts.confidence, 0)
    above = np.maximum(facts.confidence - answers.upper, 0)
    return answers.upper - answers.lower + 2 / (1 - 0.9) * (below + above)


for name, run in runs.items():
    difference = scores(run) - scores(runs["evidence"])
    error = difference.std() / np.sqrt(len(difference))
    if name != "evidence":
        print(
            f"{name:24} {difference.mean():.3f} ± {error:.3f} worse than evidence"
        )

# %% [markdown]
# Three habits that keep a comparison honest:
#
# - Decide on the figures before you look at them, and show all four.
# - Choose settings on held-out training facts, never on calibration or test facts. If you pick the best
#   of twenty methods by their test facts, you report luck.
# - Repeat with other seeds: one split is one draw.
#
# The [figures on the benchmarks](../measurements/evidence.md), at all levels, are measured in
# the same way. [How intervals are judged](../judging.md) says what each figure means exactly.
