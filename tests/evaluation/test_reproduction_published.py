"""The paper's numbers are all there, and some of them as read from its tables."""

from __future__ import annotations

import pytest

from unkgcp.evaluation.reproduction.paper_claims import as_shown, printed_row, published


@pytest.mark.parametrize("table", ["table1", "table3"])
def test_every_configuration_is_there(table):
    for data in ("cn15k", "ppi5k", "nl27k"):
        rows = published()[table][data]
        assert list(rows) == ["ukge", "passleaf", "beurre"]
        assert list(rows["ukge"]) == list(rows["beurre"]) == ["fpi", "qr", "cp", "unkgcp"]
        assert list(rows["passleaf"]) == ["fpi", "cp", "unkgcp"]
        for row in rows.values():
            for figures in row.values():
                for mean, deviation in figures.values():
                    assert 0 <= mean <= 1
                    assert 0 <= deviation < 0.5


@pytest.mark.parametrize(
    ("table", "data", "model", "method", "coverage", "sharpness"),
    [
        ("table1", "cn15k", "ukge", "unkgcp", [0.90, 0.001], [0.82, 0.003]),
        ("table1", "ppi5k", "beurre", "qr", [0.90, 0.002], [0.49, 0.001]),
        ("table1", "nl27k", "ukge", "cp", [0.90, 0.001], [0.27, 0.006]),
        ("table1", "nl27k", "beurre", "unkgcp", [0.90, 0.002], [0.38, 0.003]),
        ("table3", "cn15k", "beurre", "cp", [0.72, 0.006], [0.41, 0.014]),
        ("table3", "ppi5k", "passleaf", "unkgcp", [0.71, 0.008], [0.06, 0.001]),
        ("table3", "nl27k", "beurre", "unkgcp", [0.91, 0.002], [0.02, 0.002]),
    ],
)
def test_figures_as_printed(table, data, model, method, coverage, sharpness):
    assert published()[table][data][model][method] == {"coverage": coverage, "sharpness": sharpness}


def test_errors_and_statistics():
    assert published()["table2"]["nl27k"]["passleaf"] == {"mse": 0.06, "mae": 0.11}
    assert published()["table2"]["cn15k"]["beurre"] == {"mse": 0.12, "mae": 0.28}
    assert published()["statistics"]["nl27k"] == {
        "entities": 27221, "relations": 404, "train": 149100, "calibration": 12278, "test": 14034,
    }  # fmt: skip


def test_the_paper_counts_seven_of_nine():
    """Its own claim follows from its own table: UnKGCP at most as wide as CP, by the printed decimals."""
    table = published()["table1"]
    wins = [
        row["unkgcp"]["sharpness"][0] <= row["cp"]["sharpness"][0]
        for rows in table.values()
        for row in rows.values()
    ]
    assert sum(wins) == 7
    assert len(wins) == 9


def test_the_printed_ukge_stands_beside_both_variants():
    table = published()["table1"]
    rows = [
        printed_row(table, {"data": "nl27k", "model": model})
        for model in ("ukge", "ukge-rect", "passleaf", "none")
    ]
    assert rows[0] == rows[1] == table["nl27k"]["ukge"]
    assert rows[2] == table["nl27k"]["passleaf"]
    assert rows[3] == printed_row(table, {"data": "demo", "model": "ukge"}) == {}


def test_a_table_is_judged_by_the_variant_it_shows():
    blocks = [
        {"data": data, "model": model}
        for data, models in (
            ("cn15k", ("ukge", "ukge-rect", "beurre")),
            ("ppi5k", ("ukge",)),
            ("nl27k", ("ukge-rect",)),
        )
        for model in models
    ]
    names = {
        table: [f"{b['data']} {b['model']}" for b in as_shown(blocks, table)]
        for table in ("table1", "table2")
    }
    assert names["table1"] == ["cn15k ukge-rect", "cn15k beurre", "ppi5k ukge", "nl27k ukge-rect"]
    assert names["table2"] == ["cn15k ukge", "cn15k beurre", "ppi5k ukge", "nl27k ukge-rect"]
