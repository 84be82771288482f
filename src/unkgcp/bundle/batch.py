"""The one function behind every engine: an Arrow batch of labels in, an Arrow batch of answers out.

What it is: pure. It reads nothing, keeps nothing and gives rows back in their order, so that a loop, a
cluster and a service can all call it, from several threads if they like. What it is not: a reader or writer of
files.

>>> answer_batch(predictor, batch, confidence=0.9).schema.names     # doctest: +SKIP
['head', 'relation', 'tail', 'score', 'lower', 'upper', 'status']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from unkgcp.conformal.predictors import Levels
from unkgcp.conformal.predictors.tables import columns as columns_of

if TYPE_CHECKING:
    from unkgcp.bundle.predictor import Predictor

LABELS = ("head", "relation", "tail")


def answer_batch(predictor: Predictor, batch: pa.RecordBatch, confidence: Levels = 0.9) -> pa.RecordBatch:
    """head, relation, tail as given; score, lower, upper (`lower_80`, ... for several levels) and status.

    Labels are strings or dictionaries of strings. The status is a dictionary too.
    """
    answers = columns_of(predictor.interval(batch, confidence))
    columns = [batch.column(name) for name in LABELS]
    return pa.record_batch([*columns, *answers.values()], names=[*LABELS, *answers])
