"""What runs on a worker: a predictor, loaded once, that answers one part after another.

What it is: a plain class without Ray in it. A part is read, answered batch by batch and written under its final
name only when all of it is there, so that a part can be computed again at any time: when a worker dies, another
one repeats its part and nobody sees the difference. What it is not: a planner, see `unkgcp.bundle.engines.parts`.

Errors travel as values, because an exception comes back from another process as pages of traceback.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from unkgcp._version import __version__
from unkgcp.bundle.engines.delivery import ANSWERS, ATTEMPTS
from unkgcp.bundle.engines.parts import Part, part_name
from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.bundle.predictor import Predictor
    from unkgcp.bundle.stream import Answer

LIMIT = 5  # attempts at one part: something that kills its worker every time would go on for ever

PLAN = pa.schema(
    [
        ("number", pa.int64()),
        ("path", pa.string()),
        ("first", pa.int64()),
        ("rows", pa.int64()),
        ("before", pa.int64()),
    ]
)
OUTCOME = pa.schema(
    [("number", pa.int64()), ("rows", pa.int64()), ("attempts", pa.int64()), ("error", pa.string()),
     ("bad_input", pa.bool_())]
)  # fmt: skip


class Answerer:
    """Answers parts of a plan (a table of `PLAN`), and says for each what came of it (`OUTCOME`).

    `stage` is the folder where answers are written: all workers must see it, and the run and the queries, under
    the same name. `completion` holds options of `complete_batch`, for queries with an open place. `condition` is
    the text of a filter. `threads` is how many Arrow may use in this process. `version` is that of the program that
    made the plan.
    """

    def __init__(
        self,
        run: str,
        stage: str,
        confidence: Any,
        reading: dict[str, Any],
        completion: dict[str, Any] | None = None,
        condition: str | None = None,
        device: str = "cpu",
        threads: int | None = None,
        version: str = __version__,
    ) -> None:
        self.run, self.stage, self.confidence, self.reading = run, Path(stage), confidence, reading
        self.completion, self.condition = completion, condition
        self.device, self.version = device, version
        if threads is not None:
            pa.set_cpu_count(threads)  # other workers are on this machine too
        self._predictor: Predictor | None = None

    def __call__(self, plan: pa.Table) -> pa.Table:
        return pa.Table.from_pylist([self._outcome(Part(**row)) for row in plan.to_pylist()], OUTCOME)

    def _outcome(self, part: Part) -> dict[str, Any]:
        result = {"number": part.number, "rows": part.rows, "attempts": 0, "error": None, "bad_input": False}
        try:
            return {**result, "attempts": self._answer(part)}
        except InputError as error:
            return {**result, "error": str(error), "bad_input": True}
        except Exception as error:
            return {**result, "error": f"{error} ({type(error).__name__} on {socket.gethostname()})"}

    def _answer(self, part: Part) -> int:
        """Write the answers of a part; returns how many attempts were made at it so far."""
        if not self.stage.is_dir():
            raise InputError(
                f"{self.stage.parent} is not there on {socket.gethostname()}: every machine of the cluster must "
                "see the run, the queries and the output under the same names, on a shared file system"
            )
        target = self.stage / ANSWERS / part_name(part.number)
        attempts = len(list((self.stage / ATTEMPTS).glob(f"{part.number}-*")))
        if target.exists():  # only its report was lost
            return attempts
        if attempts >= LIMIT:
            raise RuntimeError(
                f"a worker died {LIMIT} times over rows {part.first + 1} to {part.first + part.rows} of "
                f"{part.path}; there may be too little memory for so many workers"
            )
        # the mark names its process, so that one can see who is at work on what
        (self.stage / ATTEMPTS / f"{part.number}-{attempts}").write_text(
            f"{os.getpid()} {socket.gethostname()}"
        )
        self._write(part, target)
        return attempts + 1

    def _write(self, part: Part, target: Path) -> None:
        from unkgcp.bundle.output import open_output
        from unkgcp.graph.queries import query_batches

        answer = self._answering()
        rows = range(part.first, part.first + part.rows)
        done = part.before
        with open_output(str(target)) as write:
            batches = query_batches(
                part.path, rows=rows, open_places=self.completion is not None, **self.reading
            )
            for batch in batches:
                write(answer(batch, done))
                done += len(batch)

    def _answering(self) -> Answer:
        """The function of the local engine: a batch and the number of rows before it in, answers out."""
        from unkgcp.bundle.conditions import parse
        from unkgcp.bundle.stream import answering

        if self._predictor is None:
            self._predictor = self._load()
        levels = [self.confidence] if isinstance(self.confidence, float) else self.confidence
        keep = None if self.condition is None else parse(self.condition, levels)
        return answering(self._predictor, self.confidence, self.completion, keep)

    def _load(self) -> Predictor:
        from unkgcp.bundle.predictor import Predictor

        if self.version != __version__:
            raise InputError(
                f"{socket.gethostname()} has unkgcp {__version__}, this program is {self.version}: "
                "install the same version on every machine of the cluster"
            )
        predictor = Predictor.load(self.run)
        if self.device == "cpu":
            return predictor
        from unkgcp.bundle.engines.device import on_device

        return on_device(predictor, self.device)
