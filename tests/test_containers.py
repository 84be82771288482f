"""Containers of named arrays: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save

from unkgcp.errors import InputError
from unkgcp.files import Field, check_fields, read_container, write_container

ARRAYS = {
    "a/matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "number": np.array(7),
    "none": np.zeros((0, 4), np.uint16),
    "mask": np.array([True, False]),
    "labels": np.array(["é", "long label", ""]),
    "one label": np.array("text"),
}
FORMAT = "test 1"


@pytest.fixture
def path(tmp_path):
    write_container(tmp_path / "c.safetensors", FORMAT, ARRAYS, {"of": [1, None, "ü"]})
    return tmp_path / "c.safetensors"


def test_read_as_written(path):
    arrays, about, digest = read_container(path, FORMAT, "try again")
    assert about == {"of": [1, None, "ü"]}
    assert len(digest) == 64
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)


def test_every_altered_byte_is_noticed(path):
    content = path.read_bytes()
    for place in range(len(content)):
        bit = 1 << place % 8
        path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
        with pytest.raises(InputError, match="try again"):
            read_container(path, FORMAT, "try again")


def test_other_formats_are_named(path):
    with pytest.raises(InputError, match=r"its format is 'test 1', this program reads 'test 2'\); try again"):
        read_container(path, "test 2", "try again")


PROMISED = json.dumps({"a": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 1 << 43]}}).encode()
FOREIGN = (b"", b"\x00" * 7, b"\xff" * 64, (1 << 40).to_bytes(8, "little") + b"{}", b"PK")


@pytest.mark.parametrize(
    "content",
    [*FOREIGN, len(PROMISED).to_bytes(8, "little") + PROMISED + bytes(64), save({"a": np.zeros(2)})],
)
def test_foreign_files(path, content):
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged or foreign"):
        read_container(path, FORMAT, "try again")


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match="not a plain file"):
            read_container(other, FORMAT, "try again")


def test_numbers_that_json_does_not_have_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_container(tmp_path / "x", FORMAT, {}, {"a": float("nan")})


FIELDS = (
    Field("ids", np.unsignedinteger, ("facts",), high="entities"),
    Field("offsets", (np.int64, np.uint32), ("entities+1",), 0, rising=True),
    Field("share", np.floating, ("facts", 2), 0, 1, optional=True),
)
GOOD = {"ids": np.array([0, 2], np.uint8), "offsets": np.array([0, 1, 1, 2])}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ids": np.array([0, 3], np.uint8)}, "'ids' holds 3, which is not between -inf and 2"),
        ({"ids": np.array([0, 1])}, "'ids' holds numbers of the type int64"),
        ({"ids": np.array([[0]], np.uint8)}, "'ids' has 2 dimensions and not 1"),
        ({"ids": None}, "'ids' is missing"),
        ({"offsets": np.array([0, 1])}, "'offsets' has 2 of entities"),
        ({"offsets": np.array([0, 2, 1, 2])}, "'offsets' falls"),
        ({"offsets": np.array([-1, 2, 2, 2])}, "'offsets' holds -1"),
        ({"share": np.zeros((3, 2))}, "'share' has 3 of facts = 2"),
        ({"share": np.array([[0, np.nan], [0, 0]])}, "'share' holds a number that is not finite"),
        ({"other": np.zeros(1)}, "'other' does not belong there"),
    ],
)
def test_what_is_declared_is_checked(change, sentence):
    assert check_fields(GOOD, FIELDS, entities=3) == {"entities": 3, "facts": 2}
    arrays = {name: array for name, array in {**GOOD, **change}.items() if array is not None}
    with pytest.raises(ValueError, match=sentence):
        check_fields(arrays, FIELDS, entities=3)
