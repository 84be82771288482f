"""Search for good hyperparameters on the validation error, with Optuna (`pip install 'unkgcp[tune]'`).

The grid is the paper's: learning rate, dimension and batch size; all else stays as in a base configuration.
A trial is one training run. It is stopped if its best validation error so far is worse than the median of earlier
trials at the same epoch. Trials are kept in a file: a search that was killed goes on where it stopped.

The error of the best trial is no estimate: it is the smallest of many, hence too good. Neither calibration nor test
facts are looked at.

>>> best = tune(splits.train, "ukge", trials=20, storage="tuned.db")    # doctest: +SKIP
>>> model = train(splits.train, config=best.config)                     # doctest: +SKIP
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unkgcp.errors import InputError
from unkgcp.files import write_text
from unkgcp.graph.facts import Graph
from unkgcp.progress import Progress, Silent
from unkgcp.training.config import TrainConfig, config_for
from unkgcp.training.loop import TrainingError
from unkgcp.training.trainer import train

if TYPE_CHECKING:
    import optuna

GRID: dict[str, tuple[float, ...]] = {
    "learning_rate": (1e-4, 1e-3, 1e-2),
    "dimension": (64, 128, 256, 512),
    "batch_size": (128, 256, 512, 1024, 2048, 4096),
}

STARTUP = 5
"""So many trials run to their end before any is stopped."""

Point = tuple[float, ...]
"""One point of the grid: a value for each of its keys, in their order."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One training run: what was tried, how it ended (`finished`, `stopped`, `failed`) and its best error."""

    config: TrainConfig
    state: str
    error: float | None


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best configuration, its validation error, and all trials; `complete` unless the user stopped the search."""

    config: TrainConfig
    error: float
    trials: list[Trial]
    complete: bool


def tune(
    facts: Graph,
    model: str = "ukge",
    *,
    base: TrainConfig | None = None,
    trials: int = 20,
    seed: int = 0,
    validation: Graph | None = None,
    softlogic: Graph | None = None,
    device: str = "auto",
    storage: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Try `trials` points of the grid, those already in `storage` included, and return the best.

    Without `validation` the error is taken on the slice of `facts` held out for early stopping.
    """
    if trials < 1:
        raise InputError(f"{trials} trials find nothing; choose 1 or more")
    base = base or config_for(model)
    if not base.trains:
        raise InputError(
            f"model {base.model!r} is none to be trained here, so there is nothing to tune; name another"
        )
    purpose: dict[str, Any] = {
        "base": {key: value for key, value in base.to_dict().items() if key not in GRID},
        "facts": _fingerprint(facts),
        "softlogic": None if softlogic is None else _fingerprint(softlogic),
        "validation": None if validation is None else _fingerprint(validation),
        "seed": seed,
        "grid": GRID,
    }
    search = _Search(base, seed, purpose, storage)
    progress = progress or Silent()
    complete = True
    while len(search.tried) < min(trials, len(search.points)):
        trial, config = search.next()
        progress.update(len(search.tried), search.describe(config))

        def report(epoch: int, error: list[float], trial: optuna.Trial = trial) -> bool:
            trial.report(error[0], epoch)
            return trial.should_prune()

        try:
            trained = train(
                facts,
                seed=seed,
                config=config,
                validation=validation,
                softlogic=softlogic,
                device=device,
                callback=report,
            )
        except TrainingError:
            trial.set_user_attr("diverged", True)
            search.fail(trial)
            continue
        if trained.interrupted:
            search.fail(trial)
            complete = False
            break
        search.ended(trial, min(entry["validation"] for entry in trained.history))
        progress.update(len(search.tried), search.describe(config))
    return search.result(complete)


class _Search:
    """The study behind a search: which points were tried, which comes next, which is best."""

    def __init__(
        self, base: TrainConfig, seed: int, purpose: dict[str, Any], storage: str | PathLike[str] | None
    ) -> None:
        try:
            import optuna
        except ImportError:
            raise InputError("tuning needs Optuna; run `pip install 'unkgcp[tune]'`") from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.base, self.states = base, optuna.trial.TrialState
        self.points = list(itertools.product(*GRID.values()))
        self.study = _open(storage)
        self._claim(purpose, storage)
        killed = self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,))
        for trial in killed:
            self.study.tell(trial.number, state=self.states.FAIL)
            self.study.enqueue_trial(trial.params)
        known = len(self.study.trials)
        self.study.sampler = optuna.samplers.TPESampler(seed=seed + known)
        self.study.pruner = optuna.pruners.MedianPruner(STARTUP, n_warmup_steps=4 * base.validate_every)
        if not known:
            self.study.enqueue_trial(dict(zip(GRID, _start(base), strict=True)))

    @property
    def tried(self) -> dict[Point, Trial]:
        """The points with a result, or where training diverged, in the order of their trials."""
        done = {self.states.COMPLETE: "finished", self.states.PRUNED: "stopped", self.states.FAIL: "failed"}
        found: dict[Point, Trial] = {}
        for trial in self.study.get_trials(deepcopy=False, states=tuple(done)):
            if trial.state is not self.states.FAIL or trial.user_attrs.get("diverged"):
                point = tuple(trial.params[key] for key in GRID)
                errors = list(trial.intermediate_values.values())
                error = trial.value if trial.state is self.states.COMPLETE else min(errors, default=None)
                found.setdefault(point, Trial(self._config(point), done[trial.state], error))
        return found

    def next(self) -> tuple[optuna.Trial, TrainConfig]:
        """A trial at a point that has not been tried."""
        tried = self.tried
        while True:
            trial = self.study.ask()
            point = tuple(trial.suggest_categorical(key, values) for key, values in GRID.items())
            if point not in tried:
                return trial, self._config(point)
            # the sampler may come back to a point: tell it the known result, and ask for a point that is not tried
            known = tried[point]
            if known.state == "finished" and known.error is not None:
                self.study.tell(trial, known.error)
            else:
                self.fail(trial)
            fresh = [point for point in self.points if point not in tried]
            self.study.enqueue_trial(dict(zip(GRID, fresh[trial.number % len(fresh)], strict=True)))

    def ended(self, trial: optuna.Trial, error: float) -> None:
        if trial.should_prune():
            self.study.tell(trial, state=self.states.PRUNED)
        else:
            self.study.tell(trial, error)

    def fail(self, trial: optuna.Trial) -> None:
        """End a trial without a result. Its point counts as tried if training diverged there."""
        self.study.tell(trial, state=self.states.FAIL)

    def describe(self, config: TrainConfig) -> str:
        best = min((t.error for t in self.tried.values() if t.state == "finished" and t.error), default=None)
        size = f"dimension {config.dimension}, batch {config.batch_size}"
        found = "" if best is None else f"; best error so far {best:.5f}"
        return f"learning rate {config.learning_rate:g}, {size}{found}"

    def result(self, complete: bool) -> Tuned:
        trials = list(self.tried.values())
        finished = [(trial.error, i) for i, trial in enumerate(trials) if trial.state == "finished"]
        if not finished:
            if not complete:
                raise InputError("stopped before the first trial had ended; call again to go on")
            raise TrainingError("no trial ended with a number; check the data or the base configuration")
        error, best = min(finished)
        assert error is not None
        return Tuned(trials[best].config, error, trials, complete)

    def _config(self, point: Point) -> TrainConfig:
        values: dict[str, Any] = dict(zip(GRID, point, strict=True))
        return replace(self.base, **values)

    def _claim(self, purpose: dict[str, Any], storage: str | PathLike[str] | None) -> None:
        """Refuse a file whose trials are not comparable with this search."""
        purpose = json.loads(json.dumps(purpose))
        theirs = self.study.user_attrs.get("purpose", purpose)
        for key, value in purpose.items():
            if theirs.get(key) != value:
                raise InputError(
                    f"{storage} holds trials of another search (its {key} differs); give another --storage"
                )
        self.study.set_user_attr("purpose", purpose)


def _open(storage: str | PathLike[str] | None) -> optuna.Study:
    import optuna
    from sqlalchemy.exc import DatabaseError

    if storage is None:
        return optuna.create_study(direction="minimize")
    Path(storage).absolute().parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.create_study(
            storage=f"sqlite:///{Path(storage).absolute()}",
            study_name="unkgcp",
            direction="minimize",
            load_if_exists=True,
        )
    except DatabaseError:
        raise InputError(f"{storage} is not a file of trials; give another --storage file") from None


def _start(config: TrainConfig) -> Point:
    """The point of the grid closest to a configuration, which is tried first."""

    def closest(values: tuple[float, ...], wish: float) -> float:
        return min(values, key=lambda value: abs(math.log(value / wish)))

    return tuple(closest(values, getattr(config, key)) for key, values in GRID.items())


def _fingerprint(facts: Graph) -> list[int]:
    columns = (facts.head, facts.relation, facts.tail, facts.confidence)
    return [len(facts), *(zlib.crc32(column.tobytes()) for column in columns)]


def write_config(best: Tuned, path: str | PathLike[str], data: str) -> None:
    """Write the best configuration as the YAML file that `TrainConfig.read` and `fit --config` take."""
    import yaml

    outcome = f"validation error {best.error:.6g}, the best of {len(best.trials)} trials"
    head = f"# Tuned on {data}: {outcome}.\n# unkgcp fit {data} -o run --config {path}\n"
    write_text(path, head + yaml.safe_dump(best.config.to_dict(), sort_keys=False))
