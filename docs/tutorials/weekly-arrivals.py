# %% [markdown]
# # A web graph that grows every week
#
# For engineers whose facts are extracted from the web: every week brings facts about entities that were
# not there before. What is an answer about a new entity worth, and what does an update bring?
#
# You need the package with the extra `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## A graph, and four weeks
#
# The entities of a part of the demo graph appear one after the other: most are there from the
# beginning, the others arrive in the weeks 1 to 4. A fact arrives with the later one of its entities.

# %%
import numpy as np

import unkgcp

demo = unkgcp.read("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:350]
facts = demo[np.isin(demo.head, often) & np.isin(demo.tail, often)]

rng = np.random.default_rng(0)
arrives = np.zeros(demo.n_entities, int)
newcomers = rng.permutation(often)[:90]
arrives[newcomers] = rng.integers(1, 5, len(newcomers))
week_of = np.maximum(arrives[facts.head], arrives[facts.tail])
for week in range(5):
    unkgcp.write(facts[week_of == week], f"week-{week}.tsv")
np.bincount(week_of)

# %% [markdown]
# ## A promise for new entities
#
# A run promises something about new entities only if some of its calibration facts are about entities
# that it had not seen. So whole entities are held out as well, beside pairs and rows:

# %%
# !unkgcp fit week-0.tsv -o run --hold-out entities,pairs,rows --split 0.3,0.2

# %% [markdown]
# Every kind of question has a line. A new entity is the hardest: the graph knows only the other end.

# %% [markdown]
# ## Week after week
#
# `update --dry-run` tells what a week would bring, and writes nothing:

# %%
# !unkgcp update run week-1.tsv --dry-run

# %% [markdown]
# Now each week is first asked about, as it arrives. Then it is taken in, and the same questions are asked
# again. In this small graph the run for the next week is fitted anew from all facts so far, which takes
# seconds.

# %%
from unkgcp.graph import load_dataset
from unkgcp.run import fit

NEW_ENTITY = 2  # known pair, new pair, new entity, new relation
predictor = unkgcp.Predictor.load("run")
rows = []
for week in range(1, 4):
    new = unkgcp.read(f"week-{week}.tsv")
    answers = predictor.interval(new, confidence=0.9)
    assert (answers.kind == NEW_ENTITY).all()
    inside = (answers.lower <= new.confidence) & (new.confidence <= answers.upper)
    again = unkgcp.update(predictor, new, seed=week).interval(new, confidence=0.9)
    known = again.kind != NEW_ENTITY
    before, after = (found.upper - found.lower for found in (answers, again))
    rows.append((week, before.mean(), after[known].mean()))
    print(f"week {week}: {len(new)} facts, {inside.mean():.0%} covered at 90 %")

    unkgcp.write(facts[week_of <= week], "so-far.tsv")
    dataset = load_dataset(
        "so-far.tsv", hold_out="entities,pairs,rows", calibration=0.3, test=0.2
    )
    predictor = fit(dataset)

# %% [markdown]
# Coverage in a single week scatters: all facts of one entity come together, so that a week says little
# more than its few dozen new entities.
#
# ## What knowing an entity brings

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 3))
weeks, before, after = np.array(rows).T
axes.bar(weeks - 0.2, before, 0.4, label="entity is new")
axes.bar(weeks + 0.2, after, 0.4, label="after the update")
axes.set(xlabel="week", ylabel="mean width at 90 %", xticks=weeks)
axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))

# %% [markdown]
# Some of the facts asked about after the update are facts that the run has learned from, so their width
# is no measure of the promise. It shows how much a graph says about an entity once it has facts.
#
# ## Update or fit again?
#
# On a large graph a week is two lines, and [a third one](watching.py) takes the new run into service
# ([fresh every week](../updating.md)):
#
#     unkgcp update run week-1.tsv
#     unkgcp monitor run week-1.tsv --state watch.json
#
# An update makes known what was new: entities that were held out, and that calibrated the answers about
# new ones, get training facts sooner or later. When too few are left, answers about new entities become
# the whole range, and the command says so. Then fit again.
