"""What went wrong, said to a client: a status and one sentence, as JSON `{"error": "..."}`."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from unkgcp.service.text import to_text


class Problem(Exception):
    """A request that is answered with an error. Raised anywhere behind the border of the service."""

    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence
        self.headers = dict(headers or {})

    def response(self) -> Response:
        return Response(
            to_text({"error": self.sentence}), self.status, self.headers, media_type="application/json"
        )


def quoted(value: object, longest: int = 60) -> str:
    """A client's own words inside a sentence, cut to a length that fits."""
    text = repr(value)
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
