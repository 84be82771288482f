# %% [markdown]
# # Partners that are surely above 0.7
#
# For biologists with a STRING export: from a network to a list of interactions whose score is above
# 0.7, with at most one in ten wrong on average.
#
# You need the package with the extras `evidence` and `plot` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## The network
#
# STRING's files (`9606.protein.links.v12.0.txt.gz` and so on) are read as they are. To run anywhere in
# seconds, this page invents a small file of the same layout: proteins in complexes, high scores inside
# a complex, low ones elsewhere, each pair listed in both directions.

# %%
import numpy as np

import unkgcp

rng = np.random.default_rng(12)
complexes = rng.integers(20, size=240)
related = rng.random((20, 20)) < 0.06
related |= related.T
lines = ["protein1 protein2 combined_score"]
for a in range(240):
    for b in range(a + 1, 240):
        same = complexes[a] == complexes[b]
        near = related[complexes[a], complexes[b]]
        listed, middle, spread = (
            (0.9, 880, 90)
            if same
            else (0.35, 560, 130)
            if near
            else (0.03, 260, 80)
        )
        if rng.random() < listed:
            score = int(np.clip(rng.normal(middle, spread), 150, 999))
            lines.append(f"9606.P{a:03} 9606.P{b:03} {score}")
            lines.append(f"9606.P{b:03} 9606.P{a:03} {score}")
with open("9606.protein.links.v12.0.txt", "w") as file:
    print(*lines, sep="\n", file=file)

network = unkgcp.read("9606.protein.links.v12.0.txt")
network

# %% [markdown]
# ## One row a pair
#
# Each pair is listed twice with the same score. If one row trains the run and the other is asked about,
# the answer is known beforehand, and every measured figure looks better than it is. So keep one row of
# each pair.

# %%
pairs = network[network.head < network.tail]
pairs

# %% [markdown]
# A fifth of the pairs are the candidates: we pretend not to know their scores, and look at them at the
# end. In practice these are pairs that somebody has listed but not scored yet. **Candidates must be like
# the facts that the run was calibrated with**; pairs that nobody listed, of which most do not interact
# at all, are another matter (`--population open`, see [the open world](../open-world.md)).

# %%
order = np.random.default_rng(0).permutation(len(pairs))
fifth = len(pairs) // 5
candidates, scored = pairs[order[:fifth]], pairs[order[fifth:]]
unkgcp.write(scored, "scored.tsv")
unkgcp.write(candidates, "candidates.tsv")  # with scores, which are not looked at
len(candidates), len(scored)

# %%
# !unkgcp fit scored.tsv -o run --split 0.25,0.1

# %% [markdown]
# `--split 0.25,0.1` takes more facts for calibration than the default, because choosing counts the
# wrong ones among them.
#
# ## Choosing
#
# `--select` is the condition on the true score, which nobody knows yet, and `--fdr` the largest share of
# wrong ones among the chosen that you allow, on average.

# %%
# !unkgcp predict run candidates.tsv --select "confidence >= 0.7" --fdr 0.1 -o answers.tsv

# %% [markdown]
# The same in Python:

# %%
predictor = unkgcp.Predictor.load("run")
rows = candidates.table().to_pylist()
questions = [(row["head"], row["relation"], row["tail"]) for row in rows]
answers = predictor.select(questions, "confidence >= 0.7", fdr=0.1)
(chosen,) = answers.selected.values()
print(f"{chosen.sum()} of {len(chosen)} candidates are chosen")

# %% [markdown]
# ## Was it right?
#
# Now look at the scores that were kept back. One in ten may be wrong on average.

# %%
truth = candidates.confidence
good = truth >= 0.7
wrong = ~good[chosen]
found = chosen[good]
print(f"wrong among the chosen: {wrong.sum()} of {len(wrong)} ({wrong.mean():.1%})")
print(f"found of those >= 0.7:  {found.sum()} of {len(found)} ({found.mean():.1%})")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3))
bins = np.linspace(0.1, 1, 37)
both = [truth[chosen], truth[~chosen]]
axes.hist(both, bins, stacked=True, label=["chosen", "left"])
axes.axvline(0.7, color="black", linewidth=1)
axes.set(xlabel="true score of a candidate", ylabel="candidates")
axes.legend(frameon=False)

# %% [markdown]
# The share in one batch scatters around its mean. The promise is for all the chosen together, over many
# such batches, and not for the partners of a single protein that you pick from the list afterwards. The
# first of the chosen pairs, with their intervals:

# %%
kept = sorted(questions[place] for place in np.flatnonzero(chosen))
predictor.interval(kept[:5], confidence=0.9)

# %% [markdown]
# These intervals hold on average over all facts; `--after-selection` gives intervals that hold [for the
# chosen](../proofs/choosing.md#intervals-after-choosing). How the choice works, and what it does not
# promise: [choosing with few wrong ones](../choosing.md).
