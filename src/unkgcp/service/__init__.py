"""Runs behind a port: the HTTP service and the explorer page.

What it is: `create_app`, the web application over one predictor or several, and `serve`, which binds it to a port. What
it is not: a store; it reads each run once and writes nowhere. Both need the extra `serve` (FastAPI and uvicorn),
which is imported when they are called.

>>> from unkgcp.service import create_app, Settings          # doctest: +SKIP
>>> app = create_app(Predictor.load("run"), Settings())      # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from unkgcp.errors import InputError
from unkgcp.service.limits import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from unkgcp.run.predictor import Predictor

ONLY = "run"  # what a predictor is called that came without a name

__all__ = ["Settings", "create_app", "require_extra"]


def require_extra() -> None:
    """An `InputError` with the remedy where FastAPI or uvicorn is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(f"the service needs {error.name}: pip install 'unkgcp[serve]'") from None


def create_app(predictor: Predictor | Mapping[str, Predictor], settings: Settings | None = None) -> FastAPI:
    """The web application over one predictor, or over several by their names; see `unkgcp.service.app`."""
    require_extra()
    from unkgcp.service.app import build

    runs = predictor if isinstance(predictor, Mapping) else {ONLY: predictor}
    return build(runs, settings or Settings())
