# %% [markdown]
# # A PyKEEN model with intervals
#
# For people who have a model that PyKEEN trained. This page turns its scores into confidences and gives
# them intervals that hold, however good the model is.
#
# You need the package with the extras `pykeen` and `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## A model
#
# The facts are split first: calibration and test facts must not have trained the model. PyKEEN gets the
# triples of the training part; it does not look at confidences.

# %%
import numpy as np
from pykeen.pipeline import pipeline
from pykeen.triples import TriplesFactory

import unkgcp

demo = unkgcp.read("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:250]
facts = demo[np.isin(demo.head, often) & np.isin(demo.tail, often)]
parts = facts.split(calibration=0.2, test=0.2, seed=0)


def triples(graph):
    rows = graph.table().to_pylist()
    return np.array([(row["head"], row["relation"], row["tail"]) for row in rows])


training = TriplesFactory.from_labeled_triples(triples(parts.train))
result = pipeline(
    training=training,
    testing=TriplesFactory.from_labeled_triples(
        triples(parts.test),
        entity_to_id=training.entity_to_id,
        relation_to_id=training.relation_to_id,
    ),
    model="DistMult",
    model_kwargs={"embedding_dim": 32},
    training_kwargs={"num_epochs": 20, "use_tqdm": False},
    evaluation_kwargs={"use_tqdm": False},
    random_seed=0,
    device="cpu",
)
type(result.model).__name__

# %% [markdown]
# ## Confidences from scores
#
# PyKEEN's scores may be any numbers; larger is better. `from_pykeen` turns them into confidences by a
# non-decreasing function, learned from the confidences of training facts. Then the model is calibrated
# like any other.

# %%
model = unkgcp.from_pykeen(result, parts.train)
predictor = unkgcp.calibrate(model, parts.calibration, method="cp")
print(predictor.guarantee)

# %%
questions = [tuple(row) for row in triples(parts.test[:4]).tolist()]
predictor.interval(questions, confidence=[0.8, 0.9])

# %% [markdown]
# ## Does it hold?
#
# Coverage at several levels on the test facts, which neither the model nor the calibration has seen. If
# the promise is kept, 99 % of coverages lie in the band, given so many facts to calibrate with and to
# test on.

# %%
from scipy.stats import betabinom

truth = parts.test.confidence
levels = np.linspace(0.5, 0.95, 10)
answers = predictor.interval(parts.test, confidence=levels.tolist())
known = answers.code == 0
inside = (answers.lower <= truth[:, None]) & (truth[:, None] <= answers.upper)
covered = inside[known].mean(0)

tested, calibrated = known.sum(), len(parts.calibration)
rank = np.ceil(levels * (calibrated + 1))
law = betabinom(tested, rank, calibrated + 1 - rank)
low, high = law.ppf(0.005) / tested, law.ppf(0.995) / tested
for row in zip(levels, low, covered, high, strict=True):
    print("asked {:.2f}   {:.3f} <= {:.3f} <= {:.3f}".format(*row))

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(4, 4))
axes.fill_between(levels, low, high, alpha=0.2)
axes.plot(levels, covered, marker="o")
axes.set(xlabel="asked", ylabel="covered")

# %% [markdown]
# Coverage follows the level: that is the promise, and it holds for any model. How good the model is
# shows in the width. This one was trained to tell facts from non-facts and has never seen a confidence,
# so its scores say little about confidences. Methods differ in how narrow they are nevertheless
# ([comparing methods honestly](comparing-methods.py)):

# %%
for method in ("cp", "unkgcp", "shortest"):
    found = unkgcp.calibrate(model, parts.calibration, method=method)
    at_90 = found.interval(parts.test, confidence=0.9)
    missed = np.maximum(at_90.lower - truth, 0) + np.maximum(truth - at_90.upper, 0)
    width = at_90.upper - at_90.lower
    score = width + 20 * missed
    print(
        f"{method:9} coverage {(missed == 0).mean():.3f}   "
        f"mean width {width.mean():.3f}   interval score {score.mean():.3f}"
    )

# %% [markdown]
# A run keeps the calibration and the labels, but not a model of PyKEEN: give the model again when you
# load the run.

# %%
predictor.save("run")
again = unkgcp.Predictor.load("run", model=model)
np.array_equal(again.interval(questions).lower, predictor.interval(questions).lower)

# %% [markdown]
# `unkgcp fit facts.tsv --model pykeen:RotatE` trains one of PyKEEN's models on the confidences
# themselves; such a run keeps the model in its folder. More: [models of your own](../own-models.md).
