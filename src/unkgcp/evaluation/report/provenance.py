"""Where a run comes from: what the run itself recorded, as tables.

What it is: versions, seeds, data, times and settings from a run's own files. What it is not: trusted; a run
may come from a stranger, so every value is only ever shown as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unkgcp.bundle import Predictor
from unkgcp.evaluation.report.html import Html, label, table, tag


def provenance(predictor: Predictor) -> list[Html]:
    """What was recorded when the run was made, and in folded tables the settings and files."""
    record = predictor.provenance
    data = _mapping(record.get("data"))
    parts = _mapping(data.get("facts"))
    times = _mapping(record.get("times"))
    rows: list[tuple[str, object]] = [
        ("data", data.get("name")),
        ("facts", ", ".join(f"{_count(count)} {part}" for part, count in parts.items())),
        ("model", predictor.model.config.model),
        ("method", predictor.method.name),
        ("seed", predictor.model.seed),
        ("protocol", record.get("protocol")),
        ("early stopping", record.get("early_stopping")),
        ("recalibrated", _recalibrated(record)),
        ("made", record.get("created")),
        ("version", record.get("unkgcp")),
        ("seconds", ", ".join(f"{step} {_seconds(value)}" for step, value in times.items())),
    ]
    shown = [(name, label(str(value))) for name, value in rows if value not in (None, "")]
    hashes = [(name, label(str(digest))) for name, digest in _mapping(data.get("hashes")).items()]
    settings = [(name, label(str(value))) for name, value in predictor.model.config.to_dict().items()]
    options = [
        (f"{predictor.method.name}: {k}", label(str(v))) for k, v in predictor.method.options().items()
    ]
    body = [table(["", ""], shown, words=(0, 1), class_="record")]
    for title, found in (("Training settings", settings + options), ("SHA-256 of the data", hashes)):
        if found:
            pairs = [(label(name), value) for name, value in found]
            body.append(tag("details", tag("summary", title), table(["", ""], pairs, words=(0, 1))))
    return body


def _recalibrated(record: Mapping[str, Any]) -> str | None:
    again = _mapping(record.get("recalibrated"))
    if not again:
        return None
    return f"from {again.get('from')} on {_count(again.get('facts'))} facts of {again.get('data') or 'its own data'}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _seconds(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else str(value)
