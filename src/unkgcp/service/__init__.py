"""A run behind a port: the HTTP service and the explorer page.

What it is: `create_app`, the web application over one predictor, and `serve`, which binds it to a port. What it
is not: a store; it reads the run once and writes nowhere. Both need the extra `serve` (FastAPI and uvicorn),
which is imported when they are called.

>>> from unkgcp.service import create_app, Settings          # doctest: +SKIP
>>> app = create_app(Predictor.load("run"), Settings())      # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp.errors import InputError
from unkgcp.service.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from unkgcp.run.predictor import Predictor

__all__ = ["Settings", "create_app", "require_extra"]


def require_extra() -> None:
    """An `InputError` with the remedy where FastAPI or uvicorn is not installed."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise InputError(f"the service needs {error.name}: pip install 'unkgcp[serve]'") from None


def create_app(predictor: Predictor, settings: Settings | None = None) -> FastAPI:
    """The web application over one predictor; see `unkgcp.service.app`."""
    require_extra()
    from unkgcp.service.app import build

    return build(predictor, settings or Settings())
