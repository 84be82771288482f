"""For all tests."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

if not os.environ.get("UNKGCP_TEST_GPU"):
    # A seed gives the same bytes on a CPU, while a GPU adds up gradients in whatever order its threads come. So tests
    # train on the CPU, also where there is a GPU; `make test-gpu` runs the GPU's own kernels on it.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

if threading.current_thread() is threading.main_thread():
    # tests that run in the background ignore SIGINT, those under nohup SIGHUP, and so would the programs that they
    # start and stop
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def published() -> Callable[[str], Path]:
    """$UNKGCP_DATA, as it was before tests changed it; a test is skipped where the data set it names is not there."""
    folder = os.environ.get("UNKGCP_DATA")

    def find(name: str) -> Path:
        if folder is None or not (Path(folder) / name / "train.tsv").is_file():
            pytest.skip(f"{name} is not here: set UNKGCP_DATA to a folder that holds the published data sets")
        return Path(folder)

    return find
