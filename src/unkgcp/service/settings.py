"""Limits of the service and who may ask it; the same record for every request.

Importing this file imports neither FastAPI nor uvicorn.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from unkgcp.errors import InputError

TOKEN_VARIABLE = "UNKGCP_TOKEN"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


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


class Address(NamedTuple):
    """Where to listen; port 0 takes a free one."""

    host: str
    port: int

    def resolved(self) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """What `socket.getaddrinfo` says; InputError for a strange host."""
        try:
            places = socket.getaddrinfo(
                self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except (OSError, UnicodeError) as error:
            raise InputError(f"--host {self.host} is no address of this machine ({error})") from None
        return places  # type: ignore[return-value]


def access(
    address: Address, token: str | None, without_token: bool, allowed: Iterable[str] = ()
) -> tuple[bytes | None, frozenset[str] | None]:
    """The token to ask for and the host names to answer to, which are `allowed` where it names some.

    A service that others can reach needs a token unless `without_token` says otherwise. One that only this machine can
    reach needs none, but then answers to the names of this machine alone: otherwise any web page could have its own
    name point here and read the answers.
    """
    token = None if token is None else token.strip()
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise InputError("the token must be one line of letters, digits and signs")
    names = frozenset(name.lower() for name in allowed)
    places = [place[0].partition("%")[0] for *_, place in address.resolved()]
    loopback = all(ipaddress.ip_address(place).is_loopback for place in places)
    if token is None and not loopback and not without_token:
        raise InputError(
            f"--host {address.host} can be reached from other machines; give a token with --token-file or "
            f"{TOKEN_VARIABLE}, or set UNKGCP_WITHOUT_TOKEN=yes"
        )
    if names or (token is None and loopback):
        names |= LOOPBACK_NAMES | {address.host.lower()}
    return None if token is None else token.encode(), names or None
