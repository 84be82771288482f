"""Limits of the service and who may ask it: one record for every request.

Importing this file imports neither FastAPI nor uvicorn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from unkgcp.errors import InputError


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and access.

    token: what `Authorization: Bearer ...` must carry, None for no check.
    hosts: names that the `Host` header may carry, None for any.
    cors_origin: web sites whose pages may ask. root_path: the path under which a proxy shows the service.
    access_log: a file for one JSON line a request, `-` for standard output.
    max_body: bytes of a request body. max_triples: triples of one request.
    max_waiting: triples of all requests that wait for the model. max_questions: other questions that wait, for a run.
    max_connections: connections that are open. Beyond the last three limits the answer is 503.
    answer_seconds: how long a request may take, from its first byte to the last byte of its answer.
    grace: within how many seconds the service stops.
    """

    token: bytes | None = None
    hosts: frozenset[str] | None = None
    cors_origin: tuple[str, ...] = ()
    root_path: str = ""
    access_log: str | None = None
    max_body: int = 4 << 20
    max_triples: int = 10_000
    max_waiting: int = 200_000
    max_questions: int = 64
    max_connections: int = 512
    answer_seconds: float = 20.0
    grace: int = 25

    def __post_init__(self) -> None:
        for name in ("max_body", "max_triples", "grace"):
            if getattr(self, name) < 1:
                raise InputError(f"the setting {name} is {getattr(self, name)}; it must be at least 1")
        if not re.fullmatch("(/[^/?#]+)*", self.root_path):
            raise InputError(f"the setting root_path is {self.root_path!r}; give a path such as /kg")
