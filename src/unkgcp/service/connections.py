"""HTTP connections that cannot be kept open by sending slowly.

What it is: uvicorn's connection with one more timer. A request, its headers and its body, has to arrive within a
given time; otherwise the connection is closed. (The application answers a slow body before that, with a
sentence.) What it is not: a limit on how long an answer takes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """A connection whose requests must arrive in time."""

    arrival_seconds = 15.0

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch(True)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        self._watch(state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0])))

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        super().connection_lost(exc)

    def _watch(self, arriving: bool) -> None:
        """Start the timer when a request has begun to arrive, stop it when all of it is there."""
        if not arriving:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(self.arrival_seconds, self.transport.close)


def connection_class(seconds: float) -> type[Any]:
    """A `Connection` with this time."""
    return type("Connection", (Connection,), {"arrival_seconds": seconds})
