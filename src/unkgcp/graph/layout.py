"""Which file of a folder is which part of a data set.

A part is recognised by its name before the first dot; the ending says how it is written. Only names are
looked at here, never contents.

>>> parts(Path("data/ppi5k"))["calibration"]
PosixPath('data/ppi5k/val.tsv')
"""

from __future__ import annotations

from pathlib import Path

from unkgcp.errors import InputError

STEMS = {
    "train": ("train",),
    "calibration": ("val", "valid", "validation", "calibration"),
    "test": ("test",),
    "negatives": ("test_with_neg", "negatives"),
    "softlogic": ("softlogic",),
}
NEEDED = ("train", "calibration", "test")
ENDINGS = tuple(f".{kind}{gzip}" for kind in ("tsv", "csv", "txt", "parquet") for gzip in ("", ".gz"))


def parts(folder: Path, remedy: str = "") -> dict[str, Path]:
    """The file of every part that is there; the needed ones must be, and no part may be there twice."""
    found: dict[str, Path] = {}
    for part, stems in STEMS.items():
        paths = [folder / f"{stem}{ending}" for stem in stems for ending in ENDINGS]
        paths = [path for path in paths if path.is_file()]
        if len(paths) > 1:
            listed = " and ".join(path.name for path in paths)
            raise InputError(
                f"{folder} holds {listed}, and only one of them can be its {part} part; move the others"
            )
        if paths:
            found[part] = paths[0]
        elif part in NEEDED:
            names = " or ".join(STEMS[part][:1] if part != "calibration" else ("val", "valid", "calibration"))
            raise InputError(
                f"{folder} holds no {names} file ({', '.join(ENDINGS[::2])}, plain or .gz); "
                + (remedy or "a data folder needs train, val and test, or give one file to have it split")
            )
    return found
