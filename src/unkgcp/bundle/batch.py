"""The one function behind every engine: an Arrow batch of labels in, an Arrow batch of answers out.

What it is: pure. It reads nothing, keeps nothing and gives rows back in their order, so that a loop, a
cluster and a service can all call it. What it is not: a reader or writer of files.

>>> answer_batch(predictor, batch, confidence=0.9).schema.names     # doctest: +SKIP
['head', 'relation', 'tail', 'score', 'lower', 'upper', 'status']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from unkgcp.conformal.predictors import Levels

if TYPE_CHECKING:
    from unkgcp.bundle.predictor import Predictor

LABELS = ("head", "relation", "tail")


def answer_batch(predictor: Predictor, batch: pa.RecordBatch, confidence: Levels = 0.9) -> pa.RecordBatch:
    """head, relation, tail as given; score, lower, upper (`lower_80`, ... for several levels) and status."""
    answers = predictor.interval(batch, confidence).to_arrow()
    columns = [batch.column(name) for name in LABELS]
    columns += [pa.concat_arrays(answers.column(name).chunks) for name in answers.schema.names]
    return pa.record_batch(columns, names=[*LABELS, *answers.schema.names])
