"""How far answers of one run may differ between processors: by the rounding of one function, and no further.

A processor is imitated with the settings by which numba, NumPy, OpenBLAS and torch leave out instructions that this
one has, in a process of its own. What docs/run-folder.md says about it is tested here: two answers differ only where
the scores do, scores differ by no more than `tests/rounding.py` explains, and ends follow them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.rounding import apart, assert_within, boxes_apart, ends_apart, logistic_apart
from tests.worlds import random_graph, random_ids, random_model, vocabulary
from unkgcp.graph.known_facts import KnownFacts
from unkgcp.methods import create
from unkgcp.run import Predictor, calibrate

ENTITIES, RELATIONS, DIMENSION, QUERIES = 2000, 7, 128, 8_000
LEVELS = [0.5, 0.9, 0.99]
WORDS = vocabulary(ENTITIES, RELATIONS)

# how a run is calibrated, and the model under it
RUNS = {
    "cp": "ukge",
    "unkgcp": "ukge",
    "unkgcp, per relation": "ukge",
    "unkgcp, open": "ukge",
    "cv+": "ukge",
    "shortest": "ukge",
    "fpi": "ukge",
    "cp, rectified": "ukge-rect",
    "cp, boxes": "beurre",
}

ASK = """
import sys
from pathlib import Path
import numpy as np
from tests.predict.test_processors import LEVELS, queries
from unkgcp.methods.intervals import columns
from unkgcp.tabular.arrow_arrays import Coded
from unkgcp.run import Predictor
from unkgcp.run.answers import answer
for run in Path(sys.argv[1]).iterdir():
    told = columns(answer(Predictor.load(run), queries(), LEVELS))
    plain = {name: column.code if isinstance(column, Coded) else column for name, column in told.items()}
    np.savez(Path(sys.argv[2]) / f"{run.name}.npz", **plain)
"""


def queries() -> Any:
    from unkgcp.graph.facts import Triples

    return Triples(*random_ids(QUERIES, ENTITIES, RELATIONS, np.random.default_rng(5)))


def made(name: str, backbone: str) -> Predictor:
    facts, training = random_graph(1500, WORDS, 2), random_graph(6000, WORDS, 1)
    spread = 0.05 if backbone == "beurre" else 0.3  # scores of boxes with larger numbers are all close to 0
    model = random_model(WORDS, backbone, DIMENSION, spread=spread)
    model = replace(model, facts=KnownFacts.of(training))
    method = name.split(",")[0]
    if method == "cv+":
        members = [random_model(WORDS, dimension=DIMENSION, seed=seed, spread=spread) for seed in range(3)]
        fold = np.arange(len(facts)) % len(members)
        return Predictor(model, create("cv+", members=members, fold=fold).calibrate(model, facts))
    options: dict[str, Any] = {}
    if name.endswith("per relation"):
        options = {"per": "relation"}
    elif name.endswith("open"):
        options = {"population": "open", "kinds": ("uniform",)}
    return calibrate(model, facts, method, **options)


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Predictor]]:
    folder = tmp_path_factory.mktemp("processors")
    found = {name: made(name, backbone) for name, backbone in RUNS.items()}
    for name, predictor in found.items():
        predictor.save(folder / name)
    return folder, found


def fewer_instructions() -> dict[str, str]:
    """Settings for a processor that has only what every one of its kind has."""
    try:
        from numpy._core import _multiarray_umath as umath
    except ImportError:  # NumPy 1
        from numpy.core import _multiarray_umath as umath  # type: ignore[no-redef]
    features = umath.__cpu_features__
    own = [feature for feature in umath.__cpu_dispatch__ if features.get(feature)]
    return {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NPY_DISABLE_CPU_FEATURES": " ".join(own),
        "OPENBLAS_CORETYPE": "Prescott",
        "ATEN_CPU_CAPABILITY": "default",
    }


Answers = dict[str, dict[str, NDArray[Any]]]


@pytest.fixture(scope="module")
def ask(
    predictors: tuple[Path, dict[str, Predictor]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[dict[str, str]], Answers]:
    """The columns of every run in a process with these settings."""
    cache = tmp_path_factory.mktemp("compiled")

    def asked(settings: dict[str, str]) -> Answers:
        target = tmp_path_factory.mktemp("answers")
        places = [str(Path(__file__).parents[2]), *sys.path]
        environment = {
            **os.environ,
            **settings,
            "NUMBA_CACHE_DIR": str(cache),
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
        }
        command = [sys.executable, "-c", ASK, str(predictors[0]), str(target)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return {name: dict(np.load(target / f"{name}.npz")) for name in RUNS}

    return asked


@pytest.fixture(scope="module")
def both(ask: Callable[[dict[str, str]], Answers]) -> tuple[Answers, Answers]:
    return ask({}), ask(fewer_instructions())


def score_bound(predictor: Predictor) -> NDArray[np.float64]:
    """What rounding explains of a score: (n,); of the worst of them where there are several models."""
    asked, name = queries(), predictor.model.config.model
    if name == "beurre":
        score = predictor.model.score(*asked).astype(float)
        return boxes_apart(predictor.model.tables, *asked) * score + float(np.finfo(np.float32).tiny)
    # the sum has one order everywhere, so that only the exponential function is left to the processor
    return np.full(QUERIES, 0.0 if name == "ukge-rect" else logistic_apart(0.0))


@pytest.mark.parametrize("name", RUNS)
def test_answers_differ_by_rounding_alone(
    predictors: tuple[Path, dict[str, Predictor]], both: tuple[Answers, Answers], name: str
) -> None:
    here, there = both[0][name], both[1][name]
    predictor = predictors[1][name]
    bound = score_bound(predictor)
    assert here.keys() == there.keys()
    assert_within(there["score"], here["score"], bound)
    for column in here.keys() & {"status", "promise"}:  # which do not depend on scores
        np.testing.assert_array_equal(there[column], here[column])
    ends = [column for column in ("lower", "upper", "fact_lower", "fact_upper") if column in here]
    if name in ("shortest", "fpi"):
        # ends are taken from a list, at a place that the score decides, or are the same for all
        same = here["score"] == there["score"]
        for column in ends:
            np.testing.assert_array_equal(there[column][same], here[column][same])
        return
    scores = predictor.method.calibration_scores()
    residuals = predictor.method.cross.residuals if name == "cv+" else [np.abs(scores[0])]  # type: ignore
    largest = max(float(part.max()) for part in residuals)
    of_ends = bound if name.startswith("cp") else ends_apart(bound, largest)
    of_ends = of_ends + apart(
        4, 1 + largest, np.float64
    )  # times the scale, added to the score, and both corrected
    fixed = here.get("no_fact", np.zeros((QUERIES, len(LEVELS)), bool)) == there.get(
        "no_fact", np.zeros((QUERIES, len(LEVELS)), bool)
    )
    for column in ends:
        # where it is within rounding whether a query may be no fact, the lower end is 0 or the fact's
        gap = np.where(fixed, np.abs(there[column] - here[column]), 0)
        assert_within(gap, 0, of_ends[:, None])


def test_one_processor_gives_the_same_bits(
    ask: Callable[[dict[str, str]], Answers], both: tuple[Answers, Answers]
) -> None:
    """In another process, and with another number of threads."""
    again = ask({"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    for name, columns in again.items():
        for column, values in columns.items():
            np.testing.assert_array_equal(values, both[0][name][column], err_msg=f"{name}: {column}")


def test_a_model_that_differs_is_beyond_rounding(predictors: tuple[Path, dict[str, Predictor]]) -> None:
    predictor = predictors[1]["cp"]
    tables = {name: table.copy() for name, table in predictor.model.tables.items()}
    tables["entity"][:, 0] *= 1.01
    other = replace(predictor.model, tables=tables)
    with pytest.raises(AssertionError, match="rounding explains"):
        assert_within(other.score(*queries()), predictor.model.score(*queries()), score_bound(predictor))
