"""`unkgcp conformalize` as a stranger uses it: a process of its own, files in, files out, one sentence if not."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from unkgcp.cli import main
from unkgcp.conformal import SplitConformal

RNG = np.random.default_rng(0)
PREDICTION, TRUTH, SCALE = RNG.random(300), RNG.random(300), RNG.random(300) + 0.1
GROUP = np.array(["a", "b,c", 'd"e'])[np.arange(300) % 3]


def _write(path: Path, delimiter: str = ",", **columns: Any) -> Path:
    quoted = [[_quote(str(value), delimiter) for value in column] for column in columns.values()]
    lines = [delimiter.join(columns), *(delimiter.join(row) for row in zip(*quoted, strict=True))]
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def _quote(value: str, delimiter: str) -> str:
    return '"' + value.replace('"', '""') + '"' if set(value) & {'"', "\n", delimiter} else value


def _run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["conformalize", *map(str, arguments)])
    out, err = capfd.readouterr()
    return int(done.value.code or 0), out, err


def _read(path: Path) -> pa.Table:
    if ".parquet" in path.suffixes:
        return pq.read_table(path)
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    options = pa_csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ",", newlines_in_values=True)
    return pa_csv.read_csv(io.BytesIO(content), parse_options=options)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return (
        _write(tmp_path / "cal.csv", prediction=PREDICTION, truth=TRUTH),
        _write(tmp_path / "pred.csv", name=[f"row, {i}" for i in range(300)], prediction=PREDICTION[::-1]),
    )


def test_several_levels_on_standard_output(files: tuple[Path, Path], capfd: Any) -> None:
    status, out, _ = _run(
        capfd,
        "--calibration",
        files[0],
        "--input",
        files[1],
        "--confidence",
        "0.8,0.975,1",
        "--method",
        "entropy",
    )
    assert status == 0
    table = pa_csv.read_csv(io.BytesIO(out.encode()))
    names = [f"{side}_{percent}" for percent in ("80", "97.5", "100") for side in ("lower", "upper")]
    assert table.schema.names == ["name", "prediction", *names]
    cal = SplitConformal("entropy").calibrate(PREDICTION, TRUTH)
    ends = cal.interval(PREDICTION[::-1], confidence=[0.8, 0.975, 1])
    for index, name in enumerate(names):
        assert np.array_equal(table[name], ends[:, index % 2, index // 2])


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".parquet.gz"])
@pytest.mark.parametrize("target", [".csv", ".tsv.gz", ".parquet"])
def test_every_format_with_scale_and_group(suffix: str, target: str, capfd: Any, tmp_path: Path) -> None:
    columns = {
        "prediction": PREDICTION,
        "truth": TRUTH,
        "scale": SCALE,
        "group": GROUP,
        "note": [" x "] * 300,
    }
    source = tmp_path / f"cal{suffix}"
    if ".parquet" in suffix:
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer)
        source.write_bytes(gzip.compress(buffer.getvalue()) if suffix.endswith(".gz") else buffer.getvalue())
    else:
        _write(source, "\t" if ".tsv" in suffix else ",", **columns)
    out = tmp_path / f"out{target}"
    status, _, err = _run(capfd, "--calibration", source, "--input", source, "-o", out, "--confidence", "0.8")
    assert (status, err) == (0, "")
    table = _read(out)
    assert table.schema.names == [*columns, "lower", "upper", "group_size"]
    cal = SplitConformal().calibrate(PREDICTION, TRUTH, scale=SCALE, group=GROUP)
    ends = cal.interval(PREDICTION, scale=SCALE, group=GROUP, confidence=0.8)
    assert np.array_equal(np.stack([table["lower"], table["upper"]], axis=1), ends)
    assert table["group"].to_pylist() == GROUP.tolist()
    assert set(table["note"].to_pylist()) == {" x "}
    assert table["group_size"].to_pylist() == [int((each == GROUP).sum()) for each in GROUP]


def test_several_columns_of_groups(capfd: Any, tmp_path: Path) -> None:
    source = [f"s{i // 90}" for i in range(300)]  # the last one has 30 rows
    columns = {"prediction": PREDICTION, "truth": TRUTH, "relation": GROUP, "source": source}
    cal, out = _write(tmp_path / "cal.csv", **columns), tmp_path / "out.csv"
    asked = ("--calibration", cal, "--input", cal, "-o", out)
    assert _run(capfd, *asked, "--per", "relation, source")[0] == 0
    table = _read(out)
    groups = {"relation": GROUP, "source": source}
    made = SplitConformal().calibrate(PREDICTION, TRUTH, group=groups)
    ends = made.interval(PREDICTION, group=groups)
    assert np.array_equal(np.stack([table["lower"], table["upper"]], axis=1), ends)
    assert table["group_size"].to_pylist() == [30 if i >= 270 else 90 for i in range(300)]
    # one column of another name is what `group` is otherwise
    assert _run(capfd, *asked, "--per", "source")[0] == 0
    one = SplitConformal().calibrate(PREDICTION, TRUTH, group=source).interval(PREDICTION, group=source)
    assert np.array_equal(np.stack([_read(out)["lower"], _read(out)["upper"]], axis=1), one)
    for wrong, sentence in (
        ("relation,relation", "--per relation,relation: expected columns of groups, each once"),
        ("truth", "--per truth: expected columns of groups"),
        ("relation,", "--per relation,: expected columns of groups"),
        ("colour", "has no column 'colour'"),
    ):
        status, _, err = _run(capfd, *asked, "--per", wrong)
        assert status == 2
        assert sentence in err


def test_small_and_unknown_groups_are_said_in_the_output(capfd: Any, tmp_path: Path) -> None:
    cal = _write(tmp_path / "cal.csv", prediction=PREDICTION, truth=TRUTH, group=["a"] * 297 + ["rare"] * 3)
    pred = _write(tmp_path / "pred.csv", prediction=[0.1, 0.2, 0.3], group=["a", "rare", "new"])
    status, out, err = _run(capfd, "--calibration", cal, "--input", pred, "--confidence", "0.5,0.9")
    assert status == 0
    rows = [line.split(",") for line in out.splitlines()]
    assert [row[-1] for row in rows] == ["group_size", "297", "3", "0"]
    assert [row[2:6] == ["0", "1", "0", "1"] for row in rows[1:]] == [False, False, True]
    assert rows[2][4:6] == ["0", "1"], "three rows carry 50 %, not 90 %"
    assert f"1 rows of {pred} are in groups with too few rows in {cal} for confidence 0.5: " in err
    assert f"2 rows of {pred} are in groups with too few rows in {cal} for confidence 0.9: " in err


def test_what_is_carried_through_is_not_touched(capfd: Any, tmp_path: Path) -> None:
    cal = _write(tmp_path / "cal.csv", prediction=PREDICTION, truth=TRUTH)
    odd = ['say "hi"', "two\nlines", "", "007", "1e5", "NaN", "null", " spaces ", "ä, ü"]
    pred = _write(tmp_path / "pred.csv", odd=odd, prediction=["0.50"] * 9, truth=["?"] * 9)
    status, out, _ = _run(capfd, "--calibration", cal, "--input", pred)
    assert status == 0
    import csv

    rows = list(csv.DictReader(io.StringIO(out, newline="")))
    assert [row["odd"] for row in rows] == odd
    assert {row["prediction"] for row in rows} == {"0.50"}
    assert {row["truth"] for row in rows} == {"?"}


BAD = {
    "no file": (None, "{path} does not exist: there is no such file"),
    "empty": ("", "{path} is empty: give a file"),
    "no column": ("id,score\n1,2\n", "{path} has no column 'prediction' (its columns: id, score); add it"),
    "no header": ("0.1\n0.2\n", "{path} has no column 'prediction' (its columns: 0.1); add it"),
    "twice": ("prediction,prediction\n", "{path} has two columns named 'prediction'; rename one of them"),
    "text": ("prediction\n0.5\nabc\n", "{path}, line 3: prediction is 'abc', which is not a number; correct"),
    "missing": ("id,prediction\n1,0.5\n2,\n", "{path}, line 3: prediction is empty; correct or remove it"),
    "nan": ("id,prediction\n1,0.5\n\n2,nan\n", "{path}, line 4: prediction is nan, expected a finite number"),
    "blank": ("prediction\n0.5\n\n0.6\n", "{path}, line 3: prediction is empty; correct or remove it"),
    "infinite": ("prediction\n0.5\n-inf\n", "{path}, line 3: prediction is -inf, expected a finite number"),
    "after a long value": (
        'note,prediction\n"a\nb",0.5\nc,x\n',
        "{path}, line 4: prediction is 'x', which is not a number",
    ),
    "ragged": ("id,prediction\n1,0.5\n2,0.5,7\n", "line 3 has 3 columns, expected 2: correct or remove it"),
    "taken": ("prediction,lower\n0.5,1\n", "{path} already has a column 'lower'; rename it"),
    "scale": (
        "prediction,scale\n0.5,1\n",
        "cal.csv has no column 'scale', which {path} has; add it or rename it",
    ),
    "not text": (b"prediction\n\xff\xfe\n", "{path}, line 2 is not valid UTF-8"),
    "cut short": (
        gzip.compress(b"prediction\n" + b"0.5\n" * 99999)[:-90],
        "{path} is a damaged or incomplete gzip file",
    ),
    "broken parquet": (b"PAR1 and then nothing", "{path} is a damaged Parquet file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence_and_nothing_is_written(
    name: str, files: tuple[Path, Path], capfd: Any, tmp_path: Path
) -> None:
    content, sentence = BAD[name]
    path = tmp_path / "bad.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for output in (["-o", tmp_path / "out.csv"], []):
        before = sorted(tmp_path.iterdir())
        status, out, err = _run(capfd, "--calibration", files[0], "--input", path, *output)
        assert (status, out) == (2, "")
        assert sentence.format(path=path) in err
        assert err.startswith("unkgcp: ")
        assert err.count("\n") == 1
        assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("prediction,truth\n", "has no rows; calibration needs at least one labelled prediction"),
        ("prediction\n0.1\n", "has no column 'truth'"),
        (
            "prediction,truth\n0.1,0.2\n0.3,1.5\n",
            "line 3: truth is 1.5, outside the bounds (0, 1); correct it or give",
        ),
        ("prediction,truth,scale\n0.1,0.2,0\n", "line 2: scale is 0.0, expected a positive number"),
    ],
)
def test_bad_calibration(content: str, sentence: str, capfd: Any, tmp_path: Path) -> None:
    cal = tmp_path / "cal.csv"
    cal.write_text(content)
    pred = (
        _write(tmp_path / "pred.csv", prediction=[0.5], scale=[1])
        if "scale" in content
        else tmp_path / "p.csv"
    )
    if "scale" not in content:
        _write(pred, prediction=[0.5])
    status, out, err = _run(capfd, "--calibration", cal, "--input", pred)
    assert (status, out) == (2, "")
    assert sentence in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--confidence", "90"], "'90' is no number from 0 to 1"),
        (["--bounds", "1,0"], "--bounds 1,0: expected a smaller and a larger number such as 0,1, or none"),
        (["--bounds", "x"], "--bounds x: expected"),
        (["-o", "z.json"], "z.json does not end in .csv, .tsv, .parquet"),
        (["-o", "z"], "z does not end in"),
        (["--calibration", "-", "--input", "-"], "only one table can come from standard input"),
    ],
)
def test_bad_options(arguments: list[str], sentence: str, files: tuple[Path, Path], capfd: Any) -> None:
    status, out, err = _run(capfd, "--calibration", files[0], "--input", files[1], *arguments)
    assert (status, out) == (2, "")
    assert sentence in err


def test_other_bounds(capfd: Any, tmp_path: Path) -> None:
    cal = _write(tmp_path / "cal.csv", prediction=PREDICTION * 100, truth=TRUTH * 100)
    pred = _write(tmp_path / "pred.csv", prediction=[50])
    for given, bounds in (("0,100", (0, 100)), ("none", None)):
        status, out, _ = _run(
            capfd, "--calibration", cal, "--input", pred, "--bounds", given, "--confidence", "1"
        )
        expected = (
            SplitConformal(bounds=bounds)
            .calibrate(PREDICTION * 100, TRUTH * 100)
            .interval([50], confidence=1)
        )
        assert status == 0
        assert [float(end) for end in out.splitlines()[1].split(",")[1:]] == expected[0].tolist()


def test_no_torch_and_no_numba_on_the_way(files: tuple[Path, Path]) -> None:
    code = (
        "import sys\nfrom unkgcp.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
        "print([m for m in ('torch', 'numba', 'matplotlib', 'lightgbm', 'scipy') if m in sys.modules])"
    )
    arguments = ["conformalize", "--calibration", files[0], "--input", files[1]]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_shortest_intervals(files: tuple[Path, Path], capfd: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    prediction, truth = rng.random(1000), rng.choice([0.25, 0.75, 1.0], 1000)
    cal = _write(tmp_path / "many.csv", prediction=prediction, truth=truth)
    arguments = ["--input", files[1], "--method", "shortest", "-o", tmp_path / "out.csv"]
    status, _, err = _run(capfd, "--calibration", cal, *arguments)
    assert (status, err) == (0, "")
    table = _read(tmp_path / "out.csv")
    ends = SplitConformal("shortest").calibrate(prediction, truth).interval(PREDICTION[::-1])
    assert np.array_equal(np.stack([table["lower"], table["upper"]], axis=1), ends)
    kind = np.array(["a", "b", "c"])[np.searchsorted([0.25, 0.75, 1.0], truth)]
    cal = _write(tmp_path / "kinds.csv", prediction=prediction, truth=truth, kind=kind)
    pred = _write(tmp_path / "asked.csv", prediction=prediction[:5], kind=kind[:5])
    status, _, err = _run(
        capfd, "--calibration", cal, "--input", pred, "--method", "shortest", "-o", tmp_path / "k.csv"
    )
    assert (status, err) == (0, "")
    table = _read(tmp_path / "k.csv")
    assert table["lower"].to_pylist() == table["upper"].to_pylist() == truth[:5].tolist()
    status, _, err = _run(capfd, "--calibration", files[0], *arguments)
    assert status == 0
    assert err.partition(" ")[2] == (  # after the time
        f"unkgcp: {files[0]} has too few rows to learn the shortest score from; the residual was used\n"
    )


def test_a_level_out_of_reach_is_said(capfd: Any, tmp_path: Path) -> None:
    cal = _write(tmp_path / "cal.csv", prediction=PREDICTION[:20], truth=TRUTH[:20])
    status, out, err = _run(capfd, "--calibration", cal, "--input", cal, "--confidence", "0.8,0.99,1")
    assert status == 0
    assert {tuple(line.split(",")[-4:]) for line in out.splitlines()[1:]} == {("0", "1", "0", "1")}
    assert err.partition(" ")[2] == (  # after the time
        f"unkgcp: {cal}: 20 rows to calibrate on are too few for confidence 0.99: every interval is the whole range\n"
    )
    cal = _write(tmp_path / "cal.csv", prediction=PREDICTION, truth=TRUTH, group=["a"] * 25 + ["b"] * 275)
    _, _, err = _run(capfd, "--calibration", cal, "--input", cal, "--confidence", "0.97")
    assert f"25 rows of {cal} are in groups with too few rows in {cal} for confidence 0.97" in err


def test_standard_input(files: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "unkgcp", "conformalize", "--calibration", files[0], "--input", "-"]
    done = subprocess.run(command, input=files[1].read_bytes(), capture_output=True, check=True)
    named = subprocess.run([*command[:-1], files[1]], capture_output=True, check=True)
    assert done.stdout == named.stdout
    done = subprocess.run(command, input=b"prediction\n0.5\nx\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"unkgcp: standard input, line 3: prediction is 'x'")
