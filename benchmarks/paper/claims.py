"""The paper's claims as checks: each states a claim, says whether it holds in these blocks, and gives the figures.

`holds` is None where there is nothing to judge by. A check that fails is a finding, not an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.paper.blocks import PROTOCOLS, Block
from benchmarks.paper.cells import LEVEL

COVERAGE_WITHIN = 0.01
SHARPNESS_WITHIN = 0.05
ERROR_WITHIN = 0.01
# a calibration subset is enough if figures with it and with all larger ones are so close to those of the whole set
ENOUGH = 0.01
VARIANTS = ("ukge", "ukge-rect")
# the paper prints one UKGE: its Tables 1 and 3 are those of the rectified variant, Table 2 that of the logistic one
SHOWN = {"table1": "ukge-rect", "table2": "ukge"}


@dataclass(frozen=True)
class Check:
    title: str
    holds: bool | None
    result: str
    protocol: str = "-"


@cache
def published() -> dict[str, Any]:
    """Tables 1 to 3 and the statistics: `published()["table1"]["cn15k"]["ukge"]["cp"]["sharpness"]`."""
    text = Path(__file__).with_name("published.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def printed_row(table: str, block: Block) -> dict[str, Any]:
    """The row of a printed table, {} if it has none; both variants of UKGE get the row of UKGE."""
    model = "ukge" if block.model in VARIANTS else block.model
    found: dict[str, Any] = published()[table].get(block.data, {}).get(model, {})
    return found


def as_shown(blocks: Sequence[Block], table: str) -> list[Block]:
    """The blocks that a printed table shows: only one of two variants of UKGE on a data set."""
    both = {block.data for block in blocks if block.model == SHOWN[table]}
    return [
        block
        for block in blocks
        if block.model not in VARIANTS or block.model == SHOWN[table] or block.data not in both
    ]


def all_checks(blocks: Sequence[Block], scaling: Mapping[str, Any] | None) -> list[Check]:
    """Every check, for each protocol that has cells."""
    checks: list[Callable[[list[Block]], Check]] = [
        validity, monotonicity, conditionality, fixed_width_of_cp, calibration_size, sharper_than_cp
    ]  # fmt: skip
    found = []
    for protocol in PROTOCOLS:
        own = [block for block in blocks if block.protocol == protocol]
        more = [sharpness_as_published, errors_as_published] if protocol == "paper" else []
        found += [replace(check(own), protocol=protocol) for check in [*checks, *more] if own]
    title = "time is linear in the number of queries and independent of the size of the graph"
    missing = "not measured in this folder (benchmarks/predict.py calls --scaling does it)"
    holds, result = (bool(scaling["holds"]), scaling["result"]) if scaling else (None, missing)
    return [*found, Check(title, holds, result)]


def conformal_figures(blocks: Sequence[Block], kind: str) -> Iterator[tuple[Block, str, float]]:
    for block in blocks:
        for method in ("cp", "unkgcp"):
            value = block.figure(method, "positive", kind).mean
            if not np.isnan(value):
                yield block, method, value


def validity(blocks: list[Block]) -> Check:
    title = f"CP and UnKGCP cover 0.90 -+ {COVERAGE_WITHIN} of the test facts at the 90 % level"
    rows = {f"{block.name} {method}": value for block, method, value in conformal_figures(blocks, "coverage")}
    if not rows:
        return Check(title, None, "no such predictor was run")
    far = {name: value for name, value in rows.items() if abs(value - LEVEL) > COVERAGE_WITHIN}
    between = f"{min(rows.values()):.4f} and {max(rows.values()):.4f}"
    kept = f"{len(rows) - len(far)} of {len(rows)}; coverage lies between {between}"
    return Check(title, not far, kept + exceptions(f"{name} ({value:.4f})" for name, value in far.items()))


def monotonicity(blocks: list[Block]) -> Check:
    curves = {
        f"{block.name} {method} {part} {kind}": block.values("predictors", method, part, kind).mean(0)
        for block in blocks
        for method, parts in block.cells[0]["predictors"].items()
        for part in parts
        for kind in ("coverage", "sharpness")
        if block.has("predictors", method)
    }
    curves = {name: curve for name, curve in curves.items() if not np.isnan(curve).any()}
    wrong = [name for name, curve in curves.items() if (np.diff(curve) < 0).any()]
    return Check(
        "coverage and sharpness grow with the level, for every predictor",
        not wrong,
        f"{len(curves) - len(wrong)} of {len(curves)} curves over the levels never fall" + exceptions(wrong),
    )


def conditionality(blocks: list[Block]) -> Check:
    rows, plain = correlations(blocks, "unkgcp"), correlations(blocks, "cp")
    grows = sum(low > 0 for _, low, _ in rows.values())
    beats = sum(not row[0] <= plain.get(name, (-2.0,))[0] for name, row in rows.items())
    return Check(
        "the width of UnKGCP's intervals grows with the error",
        grows == len(rows) if rows else None,
        "rank correlation of width and error over covered test facts, with its 95 % interval, is above 0 in "
        f"{grows} of {len(rows)} and larger than CP's in {beats}: {listed(rows)}",
    )


def fixed_width_of_cp(blocks: list[Block]) -> Check:
    rows = correlations(blocks, "cp")
    grows = sum(low > 0 for _, low, _ in rows.values())
    return Check(
        "the width of CP's intervals does not grow with the error",
        not grows if rows else None,
        "uncut it is the same for all queries; cut to [0, 1], as all widths here, it varies with the prediction, and "
        f"its rank correlation with the error is above 0 in {grows} of {len(rows)}: {listed(rows)}",
    )


def correlations(blocks: list[Block], method: str) -> dict[str, tuple[float, float, float]]:
    path = ("conditionality", "positive", "predictors", method)
    return {block.name: block.correlation(method) for block in blocks if block.has(*path)}


def listed(rows: Mapping[str, tuple[float, float, float]]) -> str:
    texts = {
        name: "undefined" if np.isnan(mean) else f"{mean:.2f} ({low:.2f} to {high:.2f})"
        for name, (mean, low, high) in rows.items()
    }
    return "; ".join(f"{name} {text}" for name, text in texts.items())


def calibration_size(blocks: list[Block]) -> Check:
    title = "about 20 % of the calibration set gives the coverage and width of all of it"
    sizes, shares = [], []
    for block in blocks:
        for _, curve in block.curves("positive"):
            sizes.append(enough(block.sizes("positive"), curve))
            shares.append(sizes[-1] / block.sizes("positive")[-1])
    if not sizes:
        return Check(title, None, "no conformal predictor was run")
    low, high = min(sizes), max(sizes)
    between = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return Check(
        title,
        max(shares) <= 0.25,
        f"from {between} facts on (share {np.mean(shares):.1%} on average, {max(shares):.1%} at most; at most a "
        f"quarter in {sum(share <= 0.25 for share in shares)} of {len(shares)}) coverage and width stay within "
        f"{ENOUGH} of those of the whole set, with a standard deviation of coverage over draws of at most {ENOUGH}",
    )


def enough(sizes: Sequence[int], curve: Mapping[str, Any]) -> int:
    """The smallest size from which on every size is close to the whole set."""
    gaps = [np.abs(np.asarray(curve[kind]) - curve[kind][-1]) for kind in ("coverage", "sharpness")]
    close = (np.maximum(*gaps) <= ENOUGH) & (np.asarray(curve["coverage_sd"]) <= ENOUGH)
    close[-1] = True
    far = np.flatnonzero(~close)
    return sizes[far[-1] + 1 if len(far) else 0]


def sharper_than_cp(blocks: list[Block]) -> Check:
    pairs: dict[str, list[float]] = {}
    for block, _, value in conformal_figures(blocks, "sharpness"):
        pairs.setdefault(block.name, []).append(value)
    sharper = {name: pair[1] < pair[0] for name, pair in pairs.items() if len(pair) == 2}
    shown = [block.name for block in as_shown(blocks, "table1") if block.name in sharper]
    won = sum(sharper[name] for name in shown)
    both = f" ({SHOWN['table1']} counted, not ukge; {sum(sharper.values())} of {len(sharper)} with both)"
    return Check(
        "UnKGCP is sharper than CP in 7 of 9 configurations",
        9 * won >= 7 * len(shown) if sharper else None,
        f"{won} of {len(shown)}{both if len(shown) < len(sharper) else ''}; not in "
        + (", ".join(name for name, is_sharper in sharper.items() if not is_sharper) or "none"),
    )


def sharpness_as_published(blocks: list[Block]) -> Check:
    gaps = {
        f"{block.name} {method}": value - printed_row("table1", block)[method]["sharpness"][0]
        for block, method, value in conformal_figures(as_shown(blocks, "table1"), "sharpness")
        if method in printed_row("table1", block)
    }
    far = [f"{name} ({gap:+.3f})" for name, gap in gaps.items() if abs(gap) > SHARPNESS_WITHIN]
    return Check(
        f"sharpness of CP and UnKGCP on test facts is within {SHARPNESS_WITHIN} of the paper's Table 1",
        not far if gaps else None,
        f"{len(gaps) - len(far)} of {len(gaps)}" + exceptions(far),
    )


def errors_as_published(blocks: list[Block]) -> Check:
    gaps = {
        f"{block.name} {kind}": block.mean("errors", "positive", kind).mean - printed
        for block in as_shown(blocks, "table2")
        for kind, printed in printed_row("table2", block).items()
    }
    worse = [f"{name} ({gap:+.3f})" for name, gap in gaps.items() if gap > ERROR_WITHIN]
    better = sum(gap < -ERROR_WITHIN for gap in gaps.values())
    return Check(
        f"MSE and MAE on test facts are at most {ERROR_WITHIN} above the paper's Table 2",
        not worse if gaps else None,
        f"{len(gaps) - len(worse)} of {len(gaps)}, {better} of them lower by more than that"
        + exceptions(worse),
    )


def exceptions(names: Iterable[str]) -> str:
    joined = ", ".join(names)
    return f"; not: {joined}" if joined else ""
