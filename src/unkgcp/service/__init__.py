"""Runs behind a port: the HTTP service and the explorer page.

What it is: `create_app`, the web application over one predictor or several, and `server.serve`, which binds it to a
port. What it is not: a store; it reads each run once and writes nowhere. Both need the extra `evidence` (FastAPI,
uvicorn and prometheus_client), which is imported when they are called. `Client` asks a service and needs none of it.

>>> from unkgcp.service import create_app, Settings          # doctest: +SKIP
>>> app = create_app(Predictor.load("run"), Settings())      # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unkgcp.lazy import lazy

if TYPE_CHECKING:
    from unkgcp.service.app import create_app
    from unkgcp.service.settings import Settings

__getattr__, __dir__ = lazy(__name__, {"service.app": ("create_app",), "service.settings": ("Settings",)})

__all__ = ["Settings", "create_app"]
