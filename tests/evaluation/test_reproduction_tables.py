"""Tables and checks from cells made by hand: aggregation, marks, differences, three formats."""

from __future__ import annotations

import copy
import csv
import io
import json
import math
import shutil
import zipfile

import pytest

from tests.evaluation.conftest import by_hand
from unkgcp.errors import InputError
from unkgcp.evaluation.reproduction import LEVELS, PREDICTORS, Block, paper_claims
from unkgcp.evaluation.reproduction.cell_figures import measure
from unkgcp.evaluation.reproduction.cells import aggregate, cell_names, read_cell, write_cell, write_summary
from unkgcp.evaluation.reproduction.paper_tables import make_tables, write_tables


@pytest.fixture(scope="module")
def cells(dataset):
    """Three seeds of cn15k/ukge under both protocols."""
    made = []
    for protocol in ("paper", "strict"):
        for seed in range(3):
            block = Block(protocol, "cn15k", "ukge", (0, 1, 2))
            cell = measure(block, seed, dataset, LEVELS, by_hand(dataset, seed), None, PREDICTORS)
            cell.pop("measuring_seconds")
            training = {"best_epoch": 10 * seed, "quantile_best_epoch": None, "config": {}, "quantile_config": None,
                        "machine": "a machine"}  # fmt: skip
            made.append({
                "format": 1, **cell, "fingerprint": "x", "training": training,
                "statistics": {"entities": 15000, "relations": 36, "train": 1, "calibration": 150, "test": 148},
                "seconds": {"training": 1.0, "quantiles": 0.0, "scoring": 0.5, "measuring": 2.0},
            })  # fmt: skip
    return made


@pytest.fixture
def folder(cells, tmp_path):
    for cell in cells:
        name = f"{cell['protocol']}/{cell['data']}/{cell['model']}/seed-{cell['seed']}"
        write_cell(tmp_path, name, cell)
    return tmp_path


def test_mean_and_deviation_over_seeds(cells):
    found = aggregate(cells[:3])
    each = [cell["predictors"]["cp"]["positive"]["coverage"][2] for cell in cells[:3]]
    mean = sum(each) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in each) / 2)
    assert deviation > 0
    assert found["predictors"]["cp"]["positive"]["coverage"]["mean"][2] == pytest.approx(mean)
    assert found["predictors"]["cp"]["positive"]["coverage"]["sd"][2] == pytest.approx(deviation)
    assert found["seconds"]["measuring"] == 6.0
    counts = [cell["conditionality"]["positive"]["count"] for cell in cells[:3]]
    assert found["conditionality"]["positive"]["count"] == [
        sum(column) for column in zip(*counts, strict=True)
    ]


def test_one_seed_has_no_deviation(cells):
    found = aggregate(cells[:1])
    assert found["predictors"]["cp"]["positive"]["coverage"]["sd"] == [None] * 4
    assert found["conditionality"]["positive"]["predictors"]["cp"]["spearman"]["low"] is not None


def test_cells_of_different_levels_are_refused(cells):
    other = {**cells[1], "levels": [0.9]}
    with pytest.raises(InputError, match="different levels"):
        aggregate([cells[0], other])


def test_a_gap_is_filled_by_the_seeds_that_have_it(cells):
    """A bin is None only where no seed has a covered fact in it."""
    found = aggregate(cells[:3])["conditionality"]["positive"]["predictors"]["cp"]
    each = [cell["conditionality"]["positive"]["predictors"]["cp"]["width"] for cell in cells[:3]]
    assert any(None in row for row in each)
    for place, width in enumerate(found["width"]):
        known = [row[place] for row in each if row[place] is not None]
        assert width == (pytest.approx(sum(known) / len(known)) if known else None)


def test_what_the_paper_does_not_print_stands_behind_its_columns(folder, cells):
    summary = write_summary(folder, print)
    table = next(table for table in make_tables(summary) if table.name == "table1")
    assert list(table.columns[-2:]) == ["interval score", "worst tenth"]
    found = summary["cells"][0]["predictors"]["cp"]["positive"]
    (record,) = [row for row in table.records if row["predictor"] == "cp"]
    assert record["interval_score_mean"] == found["interval_score"]["mean"][2]
    assert record["worst_tenth_mean"] == found["worst_tenth"]["mean"][2]
    # cells of earlier versions have the paper's two figures alone
    for block in summary["cells"]:
        for parts in block["predictors"].values():
            for figures in parts.values():
                del figures["interval_score"], figures["worst_tenth"]
    old = next(table for table in make_tables(summary) if table.name == "table1")
    assert list(old.columns) == list(table.columns[:-2])
    assert "Interval score" not in old.note


def test_every_table_in_three_forms(folder):
    summary = write_summary(folder, print)
    written = write_tables(folder, summary)
    names = {path.stem for path in written}
    assert {"statistics", "table1", "table2", "table3", "combined", "overlap-free", "protocols", "entropy",
            "runtime", "checks", "levels", "table1-strict"} <= names  # fmt: skip
    assert all(path.stat().st_size > 50 for path in written)
    assert json.loads((folder / "summary.json").read_text())["cells"] == summary["cells"]
    rows = list(csv.DictReader(io.StringIO((folder / "tables" / "table1.csv").read_text())))
    (cp,) = [row for row in rows if row["predictor"] == "cp"]
    assert (cp["data"], cp["paper_sharpness"], cp["seeds"]) == ("cn15k", "0.88", "3")
    ours = summary["cells"][0]["predictors"]["cp"]["positive"]["sharpness"]["mean"][2]
    assert float(cp["sharpness_mean"]) == ours
    text = (folder / "tables" / "table1.md").read_text()
    assert "0.88 (0.002)" in text
    assert f"{ours - 0.88:+.2f}" in text
    latex = (folder / "tables" / "table1.tex").read_text()
    assert latex.count("{") == latex.count("}")
    assert "\\%" in latex


def marks(summary, change):
    """(predictor, valid, best) of Table 1 after figures were put in place."""
    changed = copy.deepcopy(summary)
    block = changed["cells"][0]
    for method, (coverage, sharpness) in change.items():
        block["predictors"][method]["positive"]["coverage"]["mean"][2] = coverage
        block["predictors"][method]["positive"]["sharpness"]["mean"][2] = sharpness
    table = next(table for table in make_tables(changed) if table.name == "table1")
    return {row[2]: (row[3].valid, row[6].best) for row in table.rows}


def test_valid_is_marked_and_the_sharpest_valid_is_bold(folder):
    summary = write_summary(folder, print)
    found = marks(summary, {"fpi": (0.80, 0.1), "cp": (0.896, 0.50), "unkgcp": (0.91, 0.4)})
    assert found["FPI"] == (False, False)  # sharpest of all, but not valid
    assert found["CP"] == (True, False)  # 0.896 prints as 0.90
    assert found["UnKGCP"] == (True, True)
    assert found["QR"] == (False, False)
    tied = marks(summary, {"fpi": (0.80, 0.1), "cp": (0.9, 0.401), "unkgcp": (0.91, 0.399)})
    assert tied["CP"] == tied["UnKGCP"] == (True, True)
    assert marks(summary, {"cp": (0.894, 0.5)})["CP"] == (False, False)


def check_of(summary, name):
    return next(check for check in paper_claims.all_checks(summary) if check["name"] == name)


def test_a_check_fails_when_its_claim_is_false(folder):
    summary = write_summary(folder, print)
    block = summary["cells"][0]
    cp, unkgcp = (block["predictors"][name]["positive"] for name in ("cp", "unkgcp"))
    cp["coverage"]["mean"][2] = unkgcp["coverage"]["mean"][2] = 0.905
    assert check_of(summary, "validity-paper")["holds"]
    cp["coverage"]["mean"][2] = 0.889
    assert not check_of(summary, "validity-paper")["holds"]
    assert "0.8890" in check_of(summary, "validity-paper")["result"]

    assert check_of(summary, "monotonicity-strict")["holds"]
    summary["cells"][1]["predictors"]["cp"]["negative"]["sharpness"]["mean"][3] = 0.0
    assert not check_of(summary, "monotonicity-strict")["holds"]

    cp["sharpness"]["mean"][2], unkgcp["sharpness"]["mean"][2] = 0.85, 0.83
    assert check_of(summary, "sharper-than-cp-paper")["holds"]
    assert check_of(summary, "sharpness-as-published-paper")["holds"]
    cp["sharpness"]["mean"][2] = 0.82
    assert not check_of(summary, "sharper-than-cp-paper")["holds"]
    assert "cp (-0.060)" in check_of(summary, "sharpness-as-published-paper")["result"]

    block["errors"]["positive"]["mse"]["mean"], block["errors"]["positive"]["mae"]["mean"] = 0.24, 0.415
    assert check_of(summary, "errors-as-published-paper")["holds"]
    block["errors"]["positive"]["mae"]["mean"] = 0.43
    assert not check_of(summary, "errors-as-published-paper")["holds"]

    spearman = block["conditionality"]["positive"]["predictors"]["unkgcp"]["spearman"]
    spearman |= {"mean": 0.2, "low": 0.1, "high": 0.3}
    assert check_of(summary, "conditionality-paper")["holds"]
    spearman["low"] = -0.1
    assert not check_of(summary, "conditionality-paper")["holds"]
    assert check_of(summary, "scaling")["holds"] is None


def test_the_size_that_is_enough():
    sizes = [10, 20, 40, 80, 100]
    curve = {
        "coverage": [0.95, 0.92, 0.905, 0.9, 0.9],
        "sharpness": [0.6, 0.5, 0.5, 0.5, 0.5],
        "coverage_sd": [0.05, 0.03, 0.009, 0.005, 0.0],
    }
    assert paper_claims.enough(sizes, curve) == 40
    assert paper_claims.enough(sizes, {**curve, "coverage_sd": [0.05, 0.03, 0.02, 0.005, 0.0]}) == 80
    # close by chance at a small size, then far again: it does not count
    assert paper_claims.enough(sizes, {**curve, "sharpness": [0.5, 0.5, 0.5, 0.6, 0.5]}) == 100


def pack(folder):
    """cells/ becomes cells.zip."""
    shutil.make_archive(str(folder / "cells"), "zip", folder, "cells")
    shutil.rmtree(folder / "cells")


def test_cells_in_one_archive_give_the_same_summary(folder):
    loose = write_summary(folder, print)
    names = cell_names(folder)
    pack(folder)
    assert cell_names(folder) == names
    assert write_summary(folder, print) == loose


def test_a_file_of_its_own_goes_before_the_archive(folder, cells):
    pack(folder)
    first = {**cells[0], "fingerprint": "another"}
    write_cell(folder, "paper/cn15k/ukge/seed-0", first)
    assert read_cell(folder, "paper/cn15k/ukge/seed-0", "another", print) is not None
    assert read_cell(folder, "paper/cn15k/ukge/seed-1", "x", print) is not None
    assert read_cell(folder, "paper/cn15k/ukge/seed-9", "x", print) is None
    assert len(cell_names(folder)) == len(cells)


def test_a_damaged_archive_is_named(folder):
    pack(folder)
    path = folder / "cells.zip"
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("cells/paper/cn15k/ukge/seed-0.json")
    content[member.header_offset + 200] ^= 0xFF  # the header takes fewer than 100 bytes
    path.write_bytes(content)
    said = []
    write_summary(folder, said.append)
    assert len(said) == 1
    assert "seed-0.json is damaged" in said[0]
    path.write_bytes(content[:100])
    with pytest.raises(InputError, match=r"cells\.zip cannot be read"):
        write_summary(folder, print)


def test_an_empty_folder_says_what_to_do(tmp_path):
    with pytest.raises(InputError, match="no finished cell"):
        write_summary(tmp_path, print)
