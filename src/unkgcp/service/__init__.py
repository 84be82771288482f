"""Runs behind a port: the HTTP service and the explorer page.

What it is: `create_app`, the web application over one predictor or several, and `serve`, which binds it to a port. What
it is not: a store; it reads each run once and writes nowhere. Both need the extra `evidence` (FastAPI,
uvicorn and prometheus_client), which is imported when they are called. `Client` asks a service and needs none of it.

>>> from unkgcp.service import create_app, Settings          # doctest: +SKIP
>>> app = create_app(Predictor.load("run"), Settings())      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unkgcp.service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from unkgcp.run.predictor import Predictor

ONLY = "run"  # what a predictor is called that came without a name

__all__ = ["Settings", "create_app"]


def create_app(predictor: Predictor | Mapping[str, Predictor], settings: Settings | None = None) -> FastAPI:
    """The web application over one predictor, or over several by their names; see `unkgcp.service.app`."""
    from unkgcp.service.app import build

    runs = predictor if isinstance(predictor, Mapping) else {ONLY: predictor}
    return build(runs, settings or Settings())
