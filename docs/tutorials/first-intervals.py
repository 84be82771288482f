# %% [markdown]
# # First intervals on your own file
#
# For people who have a file of facts with confidences. At the end of this page you can get an interval
# for any question about them, and you know how often it will be right.
#
# You need the package with the extra `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## The file
#
# One fact a line: head, relation, tail and a confidence between 0 and 1, separated by tabs. Use your
# own file instead of `facts.tsv`. The one here is a part of the invented graph that comes with the
# package, about people and firms of a small world. Three facts are kept back, to ask about them later.

# %%
import numpy as np

import unkgcp

demo = unkgcp.read("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:250]
some = demo[np.isin(demo.head, often) & np.isin(demo.tail, often)]
unkgcp.write(some[:-3], "facts.tsv")

with open("facts.tsv") as file:
    print(*file.readlines()[:4], sep="")

# %% [markdown]
# Always look at the data first: it is better to find now that all confidences are 1, or that a triple
# is listed a hundred times.

# %%
# !unkgcp data describe facts.tsv

# %% [markdown]
# ## A run
#
# One command splits the file into facts to learn from, facts to calibrate with and facts to test on,
# learns, calibrates and says how good the intervals are on the test facts, which it has never seen.
# The default method, evidence, is the one to start with; you can compare it with [others](../method.md).

# %%
# !unkgcp fit facts.tsv -o run

# %% [markdown]
# The verdict says how many of 100 test facts lie inside their 90 % interval; it should be 90 or a little
# more. Then there is a line for each kind of question: about pairs that the graph joins already, and about
# pairs that are new to it. `width` is how wide the intervals are, and `interval score` puts width and misses
# into one number, beside that of knowing nothing ([how intervals are judged](../judging.md)).
#
# ## Questions
#
# A file of questions has three columns. Here they are the facts kept back, and one about somebody whom
# the graph does not know.

# %%
kept_back = some[-3:].table().to_pylist()
questions = [(fact["head"], fact["relation"], fact["tail"]) for fact in kept_back]
with open("questions.tsv", "w") as file:
    for question in [*questions, ("Nobody", "knows", "Rosa Cole")]:
        print(*question, sep="\t", file=file)

# %%
# !unkgcp predict run questions.tsv --confidence 0.9

# %% [markdown]
# `score` is the expected confidence, `lower` and `upper` are the ends of the interval, `value` is a
# single likely value. About `Nobody` the graph says nothing: the interval is the whole range, and `status`
# says why.
#
# The level is chosen when you ask; nothing is learned again for another one. In Python:

# %%
predictor = unkgcp.Predictor.load("run")
predictor.interval(questions, confidence=[0.8, 0.9, 0.95])

# %%
predictor.plot(questions, confidence=[0.8, 0.9, 0.95])

# %% [markdown]
# The confidences that were kept back:

# %%
print(*(fact["confidence"] for fact in kept_back))

# %% [markdown]
# ## What you may rely on
#
# In the words of the run:

# %%
print(predictor.guarantee)

# %% [markdown]
# So of a hundred 90 % intervals ninety or more hold on average, if your questions come from the same
# source as the facts of your file; nobody knows which ones do not. Read also [what breaks the
# promise](../assumptions.md).
#
# Next: [the facts that are surely good](string-network.py), [comparing methods](comparing-methods.py),
# [watching and updating a run](watching.py).
