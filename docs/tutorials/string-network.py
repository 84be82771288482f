# %% [markdown]
# # Partners that nobody has observed yet
#
# For biologists with a STRING export: which partners of a protein are missing from the file, how high
# would their score be, and which of a list of candidates are surely above 0.7?
#
# You need the package with the extra `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## The network
#
# STRING's files (`9606.protein.links.v12.0.txt.gz` and so on) are read as they are. To run anywhere in
# seconds, this page writes who works with whom in the invented demo graph in the same layout: scores up
# to 1000, each pair in both directions. A tenth of the pairs is kept back. These are the partners that
# somebody will observe later.

# %%
import numpy as np

import unkgcp

demo = unkgcp.read("demo").table().to_pylist()
scores = {
    tuple(
        sorted((fact["head"].replace(" ", "_"), fact["tail"].replace(" ", "_")))
    ): (round(1000 * fact["confidence"]))
    for fact in demo
    if fact["relation"] == "works_with" and fact["head"] != fact["tail"]
}
pairs = [(f"9606.{a}", f"9606.{b}", score) for (a, b), score in scores.items()]
kept_back = np.random.default_rng(0).random(len(pairs)) < 0.1
later = [pair for pair, hidden in zip(pairs, kept_back, strict=True) if hidden]

with open("9606.protein.links.v12.0.txt", "w") as file:
    print("protein1 protein2 combined_score", file=file)
    for (a, b, score), hidden in zip(pairs, kept_back, strict=True):
        if not hidden:
            print(a, b, score, file=file)
            print(b, a, score, file=file)

len(pairs) - len(later), len(later)

# %%
# !unkgcp data describe 9606.protein.links.v12.0.txt

# %% [markdown]
# The relation is *symmetric*: each pair is listed in both directions with one score. If one row taught
# and its mirror were asked about, every figure would look better than it is. Therefore the two rows
# count as one fact, and a question gets the same answer in either direction.

# %%
# !unkgcp fit 9606.protein.links.v12.0.txt -o run --split 0.2,0.1

# %% [markdown]
# `--split 0.2,0.1` calibrates with more facts than usual, because the network is small.
#
# ## Unobserved partners of one protein
#
# `--exclude-known` leaves out every pair of the file, in either direction. What remains is ordered by
# the score to be expected if a pair that does not interact at all has score 0; most do not, so these are
# low. The interval is the one that holds *if* the pair interacts.

# %%
ends = [protein for pair in pairs for protein in pair[:2]]
busiest = max(set(ends), key=ends.count)
with open("question.tsv", "w") as file:
    print(busiest, "linked", "?", sep="\t", file=file)

# %%
# !unkgcp predict run question.tsv --top-k 5 --exclude-known

# %% [markdown]
# Are these good suggestions? Ask for ten unobserved partners of many proteins, and count how many of the
# pairs kept back are among them, beside ten proteins drawn at random.

# %%
predictor = unkgcp.Predictor.load("run")
hidden = {frozenset(pair[:2]) for pair in later}
listed = {frozenset(pair[:2]) for pair in pairs} - hidden
proteins = sorted({pair[0] for pair in later})[:60]
answers = [
    predictor.complete(protein, "linked", k=10, exclude_known=True)
    .to_pandas()["tail"]
    .tolist()
    for protein in proteins
]
suggested = {
    frozenset((protein, partner))
    for protein, partners in zip(proteins, answers, strict=True)
    for partner in partners
}
wanted = {pair for pair in hidden if pair & set(proteins)}
by_chance = 10 / len(set(ends))
assert (
    not suggested & listed
)  # none of them stands in the file, in either direction
print(
    f"found {len(suggested & wanted)} of {len(wanted)} pairs kept back "
    f"among ten suggestions each; by chance about {by_chance * len(wanted):.1f}"
)

# %% [markdown]
# ## Candidates that are surely above 0.7
#
# Now somebody hands you a list of pairs that do interact, not scored yet. `--select` chooses those whose
# score is above 0.7, with at most one in ten wrong on average. It does not matter in which direction a
# pair is given.

# %%
with open("candidates.tsv", "w") as file:
    for a, b, _ in later:
        print(b, "linked", a, sep="\t", file=file)

# %%
# !unkgcp predict run candidates.tsv --select "confidence >= 0.7" --fdr 0.1 -o answers.tsv

# %%
questions = [(b, "linked", a) for a, b, _ in later]
answers = predictor.select(questions, "confidence >= 0.7", fdr=0.1)
(chosen,) = answers.selected.values()
truth = np.array([score for *_, score in later]) / 1000
wrong = (truth[chosen] < 0.7).sum()
print(f"{chosen.sum()} of {len(chosen)} chosen, {wrong} of them below 0.7")
print(f"{(truth >= 0.7).sum()} candidates are above 0.7")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3))
bins = np.arange(21) / 20
axes.hist(
    [truth[chosen], truth[~chosen]], bins, stacked=True, label=["chosen", "left"]
)
axes.axvline(0.7, color="black", linewidth=1)
axes.set(xlabel="true score of a candidate", ylabel="candidates")
axes.legend(frameon=False)

# %% [markdown]
# The share of wrong ones in one batch scatters around its mean. The promise is for all the chosen
# together, over many such batches, and not for the partners of a single protein that you pick from the
# list afterwards. Pairs that nobody listed, of which most do not interact, are another matter: there
# candidates are presumed to be facts, unless you fit with `--population open` ([the open
# world](../open-world.md)).
#
# How the choice works, and what it does not promise: [choosing with few wrong ones](../choosing.md).
