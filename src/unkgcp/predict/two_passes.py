"""A file of candidates, chosen among with a bound on the share of wrong ones: the first of two passes over it.

The first pass finds the place of every candidate among the calibration facts that fail the condition, keeps it in a
temporary file (four bytes a candidate) and counts. The second, that of `unkgcp.predict.stream`, answers as always and
adds what was chosen. Memory does not grow with the file. What comes from a pipe, which can be read once only, is
written to a temporary Parquet file first.

Here also: intervals that hold for the answers that a filter keeps.

>>> with chosen_in_file(predictor, "candidates.tsv", choice) as chosen:                    # doctest: +SKIP
...     answer_file(predictor, chosen.queries, "answers.tsv", asked=chosen.answering(0.9), **chosen.reading)
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from unkgcp.conformal.selection import Cuts, Places
from unkgcp.errors import InputError
from unkgcp.files import room_for
from unkgcp.methods.intervals import Levels, as_batch
from unkgcp.predict.filter import Condition
from unkgcp.predict.parts import ROWS, spooled
from unkgcp.predict.stream import Answer, in_order
from unkgcp.progress import Progress, Silent
from unkgcp.run.answers import answer
from unkgcp.run.choosing import Choice, Chooser, answer_chosen
from unkgcp.run.predictor import Predictor
from unkgcp.tabular.query_files import query_batches


class Chosen(NamedTuple):
    """What the first pass found: the places of all candidates in order, and the cut of each share of wrong ones.

    `queries` and `reading` say where the same candidates can be read again, and how; they may be a part of all
    candidates, with `before` rows of others before them.
    """

    chooser: Chooser
    cuts: list[Cuts]
    places: Places
    queries: str
    reading: Mapping[str, Any]
    before: int = 0

    def answering(self, confidence: Levels) -> Answer:
        """The second pass: what is done with each batch and the number of rows before it."""
        answer_places = self.chooser.answering(self.cuts, confidence)
        untouched = _stamp(self.queries)

        def answer(batch: pa.RecordBatch, /, *, first: int) -> pa.RecordBatch:
            start = first - self.before
            places = np.array(self.places[start : start + len(batch)])
            if len(places) < len(batch) or _stamp(self.queries) != untouched:
                raise InputError(
                    f"{self.queries} has changed while it was read; leave it alone and start again"
                )
            return answer_chosen(self.chooser, answer_places, self.cuts, batch, places)

        return answer


@contextmanager
def chosen_in_file(
    predictor: Predictor,
    queries: str,
    choice: Choice,
    *,
    progress: Progress | None = None,
    **reading: Any,
) -> Iterator[Chosen]:
    """The first pass over a file of candidates (`-`: standard input). Temporary files are gone at the end."""
    chooser = Chooser(predictor, choice)
    report, start, done = progress or Silent(), time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="unkgcp-") as folder, room_for(folder):
        again, how = _readable_twice(queries, Path(folder) / "candidates", reading)
        counts = np.zeros(chooser.reference.bins, np.int64)
        path = Path(folder) / "places"

        def work(batch: pa.RecordBatch) -> Places:
            return chooser.places(chooser.triples(batch))

        with path.open("wb") as file, closing(in_order(query_batches(again, **how), work)) as found:
            for places in found:
                file.write(places.tobytes())
                counts += chooser.reference.count(places)
                done += len(places)
                report.update(done, since=start)
        check_some(done, queries)
        yield Chosen(chooser, chooser.cuts(counts), np.memmap(path, np.int32, "r"), again, how)


def check_some(candidates: int, queries: str) -> None:
    """InputError if there is nothing to choose from."""
    if not candidates:
        name = "standard input" if queries == "-" else queries
        raise InputError(f"{name} has no triples, so there is nothing to choose from; give it some")


def _readable_twice(queries: str, folder: Path, reading: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The file itself, or a copy of what a pipe brings."""
    if queries != "-" and (os.path.isfile(queries) or os.path.isdir(queries) or not os.path.exists(queries)):
        return queries, reading  # the reader says what is wrong with a file that is not there
    folder.mkdir()
    for _ in spooled(query_batches(queries, **reading), folder, ROWS):
        pass
    return str(folder), {}


def _stamp(path: str) -> Any:
    """What changes when somebody writes to a file."""
    try:
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns, found.st_ino
    except OSError:
        return None


def after_filter(predictor: Predictor, keep: Condition, confidence: Sequence[float]) -> Predictor:
    """The predictor whose intervals hold for the answers that a filter keeps.

    The filter looks at each answer alone and at nothing that calibration has a say in. So the calibration facts that
    it keeps and the queries that it keeps are exchangeable, and the method is calibrated with these facts alone. A
    filter on the ends of intervals is refused: the ends depend on the very facts that would be swapped.
    """
    for comparison in keep.comparisons:
        if comparison.column.split("_")[0] in ("lower", "upper", "width"):
            raise InputError(
                f"--after-selection does not go with a filter on {comparison.column!r}, which depends on the "
                "calibration facts itself; compare score, value or belief, or choose with --select"
            )
    predictor.method.check_subsets()
    facts = predictor.method.calibration_facts()
    told = as_batch(answer(predictor, facts, confidence[0]), {})
    return replace(
        predictor, method=predictor.method.among(facts[keep.mask(told).to_numpy(zero_copy_only=False)])
    )
