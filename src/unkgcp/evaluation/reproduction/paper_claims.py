"""The paper's claims as checks: each states a claim, says whether it holds in a reproduction, and gives the figures.

A check looks at the summary of the reproduction alone. `holds` is None where the summary has nothing to judge it by.
The claims are those of the paper's section 5 and of this project's own targets; a check that fails is a finding, not
an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

# The numbers that the paper prints.

VARIANTS = ("ukge", "ukge-rect")
SHOWN = {"table1": "ukge-rect", "table2": "ukge", "table3": "ukge-rect"}


@cache
def published() -> dict[str, Any]:
    """Tables 1 to 3 and the statistics: `published()["table1"]["cn15k"]["ukge"]["cp"]["sharpness"]`.

    An interval figure is [mean, standard deviation]. The paper has no quantile regression for PASSLEAF.
    """
    import yaml

    text = files("unkgcp.evaluation.reproduction").joinpath("published.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def printed_row(table: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    """The row of a printed table for a block, {} if it has none; both variants of UKGE get the row of UKGE."""
    model = "ukge" if block["model"] in VARIANTS else block["model"]
    found: dict[str, Any] = table.get(block["data"], {}).get(model, {})
    return found


def as_shown(blocks: Sequence[dict[str, Any]], table: str) -> list[dict[str, Any]]:
    """The blocks that a printed table shows: only one of two variants of UKGE on a data set."""
    both = {block["data"] for block in blocks if block["model"] == SHOWN[table]}
    return [
        block
        for block in blocks
        if block["model"] not in VARIANTS or block["model"] == SHOWN[table] or block["data"] not in both
    ]


Summary = dict[str, Any]
Block = dict[str, Any]
Check = dict[str, Any]
LEVEL = 0.9
COVERAGE_WITHIN = 0.01
SHARPNESS_WITHIN = 0.05
ERROR_WITHIN = 0.01
# a calibration subset is enough if the figures with it and with all larger ones are so close to those of the whole set
ENOUGH = {"coverage": 0.01, "sharpness": 0.01, "coverage_sd": 0.01}


def all_checks(summary: Summary) -> list[Check]:
    """Every check, for each protocol that has cells."""
    checks = (validity, monotonicity, conditionality, fixed_width_of_cp, calibration_size, sharper_than_cp)
    found = []
    for protocol in ("paper", "strict"):
        blocks = [block for block in summary["cells"] if block["protocol"] == protocol]
        if not blocks:
            continue
        made = [check(blocks) for check in checks]
        if protocol == "paper":
            made += [
                check(blocks, summary["paper"]) for check in (sharpness_as_published, errors_as_published)
            ]
        found += [{**check, "protocol": protocol, "name": f"{check['name']}-{protocol}"} for check in made]
    return [*found, scaling(summary.get("scaling"))]


def validity(blocks: list[Block]) -> Check:
    """CP and UnKGCP cover test facts at the promised level."""
    rows = {
        name: _at(block, method, "positive", "coverage")
        for block in blocks
        for method in ("cp", "unkgcp")
        if (name := f"{_name(block)} {method}") and _at(block, method, "positive", "coverage") is not None
    }
    far = {name: value for name, value in rows.items() if abs(value - LEVEL) > COVERAGE_WITHIN}
    return _check(
        "validity",
        f"CP and UnKGCP cover 0.90 -+ {COVERAGE_WITHIN} of the test facts at the 90 % level",
        not far if rows else None,
        f"{len(rows) - len(far)} of {len(rows)}; coverage lies between {min(rows.values()):.4f} and "
        f"{max(rows.values()):.4f}" + _list(far)
        if rows
        else "no such predictor was run",
        rows,
    )


def monotonicity(blocks: list[Block]) -> Check:
    """Coverage and width never fall as the level rises."""
    tried, wrong = 0, []
    for block in blocks:
        for method, parts in block["predictors"].items():
            for part, kinds in parts.items():
                for kind in ("coverage", "sharpness"):
                    line = kinds[kind]["mean"]
                    if None in line:
                        continue
                    tried += 1
                    if any(later < earlier for earlier, later in pairwise(line)):
                        wrong.append(f"{_name(block)} {method} {part} {kind}")
    return _check(
        "monotonicity",
        "coverage and sharpness grow with the level, for every predictor",
        not wrong,
        f"{tried - len(wrong)} of {tried} curves over the levels never fall" + _list(wrong),
        {"exceptions": wrong},
    )


def conditionality(blocks: list[Block]) -> Check:
    """Wide UnKGCP intervals mark queries with large errors."""
    rows = _correlations(blocks, "unkgcp")
    grows = [name for name, row in rows.items() if _positive(row)]
    plain = _correlations(blocks, "cp")
    beats = [name for name, row in rows.items() if _value(row) > _value(plain.get(name))]
    return _check(
        "conditionality",
        "the width of UnKGCP's intervals grows with the error",
        len(grows) == len(rows) if rows else None,
        f"rank correlation of width and error over covered test facts, with its 95 % interval, is above 0 in "
        f"{len(grows)} of {len(rows)} and larger than CP's in {len(beats)}: {_listed(rows)}",
        rows,
    )


def fixed_width_of_cp(blocks: list[Block]) -> Check:
    """CP's intervals have one width, until they are cut to [0, 1]."""
    rows = _correlations(blocks, "cp")
    grows = [name for name, row in rows.items() if _positive(row)]
    return _check(
        "fixed-width-of-cp",
        "the width of CP's intervals does not grow with the error",
        not grows if rows else None,
        f"uncut it is the same for all queries; cut to [0, 1], as all widths here, it varies with the prediction, and "
        f"its rank correlation with the error is above 0 in {len(grows)} of {len(rows)}: {_listed(rows)}",
        rows,
    )


def calibration_size(blocks: list[Block]) -> Check:
    """About a fifth of the calibration set is enough."""
    shares: dict[str, dict[str, float]] = {}
    for block in blocks:
        found = block["calibration_size"]["positive"]
        sizes = found["sizes"]
        for method, curve in found["predictors"].items():
            size = enough(sizes, curve)
            shares[f"{_name(block)} {method}"] = {"size": size, "share": size / sizes[-1]}
    worst = max((row["share"] for row in shares.values()), default=None)
    mean = sum(row["share"] for row in shares.values()) / len(shares) if shares else None
    within = sum(row["share"] <= 0.25 for row in shares.values())
    return _check(
        "calibration-size",
        "about 20 % of the calibration set gives the coverage and width of all of it",
        None if worst is None else worst <= 0.25,
        f"from {_range([row['size'] for row in shares.values()])} facts on (share {mean:.1%} on average, {worst:.1%} "
        f"at most; at most a quarter in {within} of {len(shares)}) coverage and width stay within "
        f"{ENOUGH['coverage']} of those of the whole set, with a standard deviation of coverage over draws of at "
        f"most {ENOUGH['coverage_sd']}"
        if worst is not None
        else "no conformal predictor was run",
        shares,
    )


def enough(sizes: list[int], curve: dict[str, list[float]]) -> int:
    """The smallest size from which on every size is close to the whole set."""
    last = len(sizes) - 1
    for start in range(last, -1, -1):
        close = all(
            abs(curve[kind][start] - curve[kind][last]) <= ENOUGH[kind] for kind in ("coverage", "sharpness")
        )
        if not close or (start < last and curve["coverage_sd"][start] > ENOUGH["coverage_sd"]):
            return sizes[start + 1]
    return sizes[0]


def sharper_than_cp(blocks: list[Block]) -> Check:
    """In how many configurations UnKGCP's intervals are narrower than CP's."""
    rows = {}
    for block in blocks:
        pair = [_at(block, method, "positive", "sharpness") for method in ("cp", "unkgcp")]
        if None not in pair:
            rows[_name(block)] = {"cp": pair[0], "unkgcp": pair[1]}
    wins = [name for name, row in rows.items() if row["unkgcp"] < row["cp"]]
    shown = [name for block in as_shown(blocks, "table1") if (name := _name(block)) in rows]
    won = [name for name in shown if name in wins]
    others = (
        ""
        if len(shown) == len(rows)
        else f" ({SHOWN['table1']} counted, not ukge; {len(wins)} of {len(rows)} with both)"
    )
    return _check(
        "sharper-than-cp",
        "UnKGCP is sharper than CP in 7 of 9 configurations",
        9 * len(won) >= 7 * len(shown) if rows else None,
        f"{len(won)} of {len(shown)}{others}; not in "
        + (", ".join(name for name in rows if name not in wins) or "none"),
        rows,
    )


def sharpness_as_published(blocks: list[Block], paper: dict[str, Any]) -> Check:
    """Sharpness of CP and UnKGCP compared with Table 1."""
    rows = {
        f"{_name(block)} {method}": _compared(ours, printed[method]["sharpness"][0])
        for block, printed in _beside(blocks, paper, "table1")
        for method in ("cp", "unkgcp")
        if (ours := _at(block, method, "positive", "sharpness")) is not None and method in printed
    }
    far = {name: row["difference"] for name, row in rows.items() if abs(row["difference"]) > SHARPNESS_WITHIN}
    return _check(
        "sharpness-as-published",
        f"sharpness of CP and UnKGCP on test facts is within {SHARPNESS_WITHIN} of the paper's Table 1",
        not far if rows else None,
        f"{len(rows) - len(far)} of {len(rows)}" + _list(far, "+.3f"),
        rows,
    )


def errors_as_published(blocks: list[Block], paper: dict[str, Any]) -> Check:
    """MSE and MAE compared with Table 2, which prints two decimals."""
    rows = {
        f"{_name(block)} {kind}": _compared(block["errors"]["positive"][kind]["mean"], printed[kind])
        for block, printed in _beside(blocks, paper, "table2")
        for kind in ("mse", "mae")
    }
    worse = {name: row["difference"] for name, row in rows.items() if row["difference"] > ERROR_WITHIN}
    better = sum(row["difference"] < -ERROR_WITHIN for row in rows.values())
    return _check(
        "errors-as-published",
        f"MSE and MAE on test facts are at most {ERROR_WITHIN} above the paper's Table 2",
        not worse if rows else None,
        f"{len(rows) - len(worse)} of {len(rows)}, {better} of them lower by more than that"
        + _list(worse, "+.3f"),
        rows,
    )


def _compared(ours: float, paper: float) -> dict[str, float]:
    return {"ours": ours, "paper": paper, "difference": ours - paper}


def scaling(found: dict[str, Any] | None) -> Check:
    """Time against the number of queries and the size of the graph."""
    title = "time is linear in the number of queries and independent of the size of the graph"
    if not found:
        return _check(
            "scaling",
            title,
            None,
            "not measured in this folder (benchmarks/predict.py calls --scaling does it)",
            {},
        )
    return _check("scaling", title, bool(found["holds"]), found["result"], found)


def _beside(blocks: list[Block], paper: dict[str, Any], table: str) -> Iterator[tuple[Block, dict[str, Any]]]:
    """Blocks that a printed table shows, with its figures."""
    for block in as_shown(blocks, table):
        printed = printed_row(paper[table], block)
        if printed:
            yield block, printed


def at_level(block: Block, method: str, part: str, kind: str) -> dict[str, Any]:
    """Mean over seeds and standard deviation at the 90 % level; both None where that was not measured."""
    found = block["predictors"].get(method, {}).get(part)
    if found is None or kind not in found or LEVEL not in block["levels"]:
        return {"mean": None, "sd": None}
    place = block["levels"].index(LEVEL)
    return {what: found[kind][what][place] for what in ("mean", "sd")}


def _at(block: Block, method: str, part: str, kind: str) -> Any:
    return at_level(block, method, part, kind)["mean"]


def _name(block: Block) -> str:
    return f"{block['data']} {block['model']}"


def _correlations(blocks: list[Block], method: str) -> dict[str, dict[str, Any]]:
    """Rank correlation of width and error of one predictor, by configuration."""
    return {
        _name(block): found[method]["spearman"]
        for block in blocks
        if method in (found := block["conditionality"]["positive"]["predictors"])
    }


def _listed(rows: dict[str, dict[str, Any]]) -> str:
    return "; ".join(f"{name} {_interval(row)}" for name, row in rows.items())


def _positive(found: dict[str, Any] | None) -> bool:
    """Whether the whole interval lies above 0."""
    return found is not None and found["low"] is not None and found["low"] > 0


def _value(found: dict[str, Any] | None) -> float:
    return -2.0 if found is None or found["mean"] is None else float(found["mean"])


def _interval(found: dict[str, Any] | None) -> str:
    if found is None or found["mean"] is None:
        return "undefined"
    if found["low"] is None:
        return f"{found['mean']:.2f}"
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _list(found: Any, form: str = ".4f") -> str:
    if not found:
        return ""
    items = [f"{k} ({v:{form}})" for k, v in found.items()] if isinstance(found, dict) else list(found)
    return "; not: " + ", ".join(items)


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _check(name: str, title: str, holds: bool | None, result: str, details: Any) -> Check:
    return {"name": name, "title": title, "holds": holds, "result": result, "details": details}
