# %% [markdown]
# # Watching and updating a run
#
# For people who use a run for weeks or months. Intervals hold for queries that are like the calibration
# facts; this page shows how to notice when facts have changed, and what to do then.
#
# You need the package with the extra `evidence` ([how to install
# it](../index.md#your-own-intervals-in-five-minutes)).
#
# ## A run, and the weeks after
#
# The run is fitted on most of a small graph. The rest arrives later, week by week, with confidences
# that somebody has checked. In the first two weeks nothing has changed. From the third week on the
# checkers are stricter: confidences are lower than they used to be.

# %%
import numpy as np

import unkgcp

demo = unkgcp.read("demo")
often = np.argsort(-np.bincount(np.concatenate([demo.head, demo.tail])))[:250]
facts = demo[np.isin(demo.head, often) & np.isin(demo.tail, often)]
facts = facts[np.random.default_rng(0).permutation(len(facts))]

unkgcp.write(facts[800:], "facts.tsv")
for week in range(1, 6):
    new = facts[(week - 1) * 160 : week * 160]
    if week > 2:
        new = new.with_confidence(0.7 * new.confidence)
    unkgcp.write(new, f"week-{week}.tsv")

# %%
# !unkgcp fit facts.tsv -o run --split 0.15,0.08

# %% [markdown]
# ## One test over many weeks
#
# `monitor` looks for evidence that new facts are not like the calibration facts. You may call it as
# often as you like: with `--state` all calls are *one* test, and the probability that it ever raises a
# false alarm is 1 % ([why](../proofs/monitor.md)). Give each call only the facts that are new.
# (Half of the rate is for all facts together, half for the relations one by one.)

# %%
# !unkgcp monitor run week-1.tsv --state watch.json
# !unkgcp monitor run week-2.tsv --state watch.json

# %% [markdown]
# Nothing so far. Then the change:

# %%
# !unkgcp monitor run week-3.tsv --state watch.json

# %% [markdown]
# The exit status is 3 when there is an alarm, so that a script can act on it.
#
# ## What it saw
#
# The same in Python, fact by fact. The evidence is the capital of somebody who bets on a change. While
# nothing has changed it is not expected to grow; at 100, which is one over the false-alarm rate, the
# alarm goes off.

# %%
from unkgcp.evaluation.monitor import Monitor


def rows(week):
    """The triples of a week's file, and their confidences."""
    found = unkgcp.read(f"week-{week}.tsv").table().to_pylist()
    triples = [(row["head"], row["relation"], row["tail"]) for row in found]
    return triples, [row["confidence"] for row in found]


monitor = Monitor(unkgcp.Predictor.load("run"), false_alarm=0.01, by_relation=False)
capital = []
for week in range(1, 4):
    for triple, confidence in zip(*rows(week), strict=True):
        monitor.update([triple], [confidence])
        capital.append(np.exp(monitor.all.martingale.log_capital))
first = next(place for place, each in enumerate(capital, 1) if each >= 100)
print(f"the alarm goes off at fact {first}, {first - 320} facts after the change")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(7, 3))
axes.semilogy(range(1, len(capital) + 1), capital)
axes.axhline(100, color="firebrick", linewidth=1)
axes.axvline(320, color="grey", linewidth=1, linestyle=":")
axes.set(xlabel="checked facts", ylabel="evidence of a change")

# %% [markdown]
# ## Updating
#
# `update` takes new facts into a run: most of them join the graph that answers are made from, the
# others calibrate. In an ordinary week this takes a moment, and new entities are known afterwards.
# The promise is then for a random fact of the *updated graph* ([the rule](../updating.md)).

# %%
# !unkgcp update run week-1.tsv -o run-1

# %% [markdown]
# An alarm says that facts are different, not that intervals are wrong; but nothing is promised for them
# any more. If the change is here to stay, and the next questions are about facts like the new ones,
# calibrate with those alone. Here they are the facts of weeks 3 and 4; they are so unlike the old ones
# that the run learns again by itself.

# %%
with open("newer.tsv", "w") as file:
    for week in (3, 4):
        for triple, confidence in zip(*rows(week), strict=True):
            print(*triple, confidence, sep="\t", file=file)

# %%
# !unkgcp update run newer.tsv -o run-new --calibrate-on new

# %% [markdown]
# Did it help? Week 5 is still to come, with facts of the new kind:

# %%
triples, truth = rows(5)
for name in ("run", "run-new"):
    found = unkgcp.Predictor.load(name).interval(triples, confidence=0.9)
    inside = (found.lower <= truth) & (truth <= found.upper)
    width = (found.upper - found.lower).mean()
    print(f"{name:8} coverage {inside.mean():.2f}, mean width {width:.2f}")

# %% [markdown]
# 0.9 is promised again, over calibration sets and questions together; with so few facts to calibrate
# on, coverage in one try has a standard deviation of about 0.05. The price is width: most of the graph
# still holds confidences of the old kind.
#
# In ordinary weeks update first and then monitor the same facts with one state file: the test goes on over
# all weeks ([how](../monitoring.md#one-test-over-many-calls)).
