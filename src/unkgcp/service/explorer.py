"""The explorer page and its files, held in memory; a browser asks again only for what has changed."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

SCRIPTS = (
    "explorer.js",
    "answer.js",
    "api.js",
    "combobox.js",
    "completing.js",
    "dom.js",
    "state.js",
)
# path -> (file, type)
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in SCRIPTS},
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


class Page:
    """One file of the page as an endpoint."""

    def __init__(self, path: str) -> None:
        name, self._type = FILES[path]
        self._content = (files("unkgcp.service") / "page" / name).read_bytes()
        self._headers = {
            "ETag": f'"{sha256(self._content).hexdigest()[:32]}"',
            "Cache-Control": "no-cache",
        }

    async def respond(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self._headers["ETag"]:
            return Response(status_code=304, headers=self._headers)
        return Response(self._content, headers=self._headers, media_type=self._type)
