# %% [markdown]
# # A PyKEEN model with intervals
#
# You have a model that [PyKEEN](https://pykeen.readthedocs.io) trained, and some facts whose confidences are
# known. At the end of this page its scores are confidences with intervals that hold.
#
# You need the extras `pykeen` and `plot`.
#
# ## A model
#
# PyKEEN learns which triples are facts; confidences mean nothing to it. Here it learns from a piece of the
# invented graph that comes with the package. Facts for calibration and for the test are set apart first:
# the model must not see them.

# %%
import logging
import warnings

import numpy as np

import unkgcp

logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")

demo = unkgcp.load("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:250]
some = demo[np.isin(demo.head, often) & np.isin(demo.tail, often)]
splits = some.split(calibration=0.2, test=0.2, seed=0)
print(len(splits.train), len(splits.calibration), len(splits.test))

# %%
from pykeen.pipeline import pipeline
from pykeen.triples import TriplesFactory

table = splits.train.table().select(["head", "relation", "tail"])
labels = np.array([column.to_pylist() for column in table.columns], dtype=str).T
factory = TriplesFactory.from_labeled_triples(labels)
result = pipeline(
    training=factory,
    testing=factory,  # PyKEEN wants some; what it measures with them is not used here
    model="RotatE",
    model_kwargs={"embedding_dim": 16},
    training_kwargs={"num_epochs": 20, "use_tqdm": False},
    evaluation_kwargs={"use_tqdm": False},
    random_seed=0,
    device="cpu",
)

# %% [markdown]
# ## From scores to confidences
#
# Its scores are any numbers, the larger the surer. `from_pykeen` learns a function that never falls, from
# the scores of training facts to their confidences, so that the order of the scores stays.

# %%
model = unkgcp.from_pykeen(result, splits.train)
predictor = unkgcp.calibrate(model, splits.calibration, method="cp")
print(predictor.guarantee)

# %% [markdown]
# ## Questions
#
# Asked about the test facts, which neither PyKEEN nor the calibration has seen:

# %%
found = predictor.interval(splits.test, confidence=0.9)
truth, known = splits.test.confidence, found.code == 0
inside = (found.lower <= truth) & (truth <= found.upper)
print(f"covered: {inside[known].mean():.3f}   mean width: {found.width[known].mean():.3f}")

# %% [markdown]
# So few facts cover a little more or less than 0.9. If the promise holds, the share lies between these
# two 999 times in 1,000:

# %%
from unkgcp.evaluation.metrics import summed_band

low, high = summed_band([(predictor.method.size, int(known.sum()))], 0.9)
print(f"{low:.3f} to {high:.3f}")

# %% [markdown]
# The promise does not depend on what the model is worth; the width does. This one was never told
# confidences. `unkgcp fit --model pykeen:RotatE` trains the same model [on the confidences
# themselves](../own-models.md).

# %%
rows = splits.test[np.flatnonzero(known)[:5]].table().to_pylist()
predictor.plot([(row["head"], row["relation"], row["tail"]) for row in rows])

# %% [markdown]
# ## Later
#
# A run keeps the calibration and the labels, not the model: give it again. Another one is noticed.

# %%
predictor.save("run")
again = unkgcp.Predictor.load("run", model=unkgcp.from_pykeen(result, splits.train))
print((again.interval(splits.test).upper == found.upper).all())

# %% [markdown]
# Next: [models of your own](../own-models.md), of whatever library; [comparing
# methods](comparing-methods.py).
