"""`python -m benchmarks.paper`, or `make paper`: see the package."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.paper import __doc__ as about
from benchmarks.paper.blocks import DATA, MODELS, PROTOCOLS, read_blocks
from benchmarks.paper.cells import METHODS, Plan, run
from benchmarks.paper.claims import all_checks
from benchmarks.paper.page import write_page
from benchmarks.paper.tables import make_tables


def names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.replace(",", " ").split()))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("paper-run"), help="the folder to fill or to go on with"
    )
    parser.add_argument("--data", type=names, default=tuple(DATA))
    parser.add_argument("--models", type=names, default=tuple(MODELS), help="names, or module:Class")
    parser.add_argument("--methods", type=names, default=METHODS)
    parser.add_argument("--seeds", type=int, default=10, help="so many, counted from 0")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="paper")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--settings", type=json.loads, default={}, help='for all models: {"epochs": 5}')
    parser.add_argument(
        "--tables-only", action="store_true", help="train nothing; show the cells in the folder"
    )
    options = parser.parse_args(arguments)
    if not options.tables_only:
        asked = [
            getattr(options, name) for name in ("protocol", "data", "models", "methods", "seeds", "device")
        ]
        run(Plan(*asked, options.settings), options.output, lambda sentence: print(sentence, flush=True))
    blocks, scaling = read_blocks(options.output), options.output / "scaling.json"
    checks = all_checks(blocks, json.loads(scaling.read_text("utf-8")) if scaling.exists() else None)
    tables = make_tables(blocks, checks)
    (options.output / "tables").mkdir(exist_ok=True)
    for table in tables:
        (options.output / "tables" / f"{table.name}.md").write_text(table.markdown(), encoding="utf-8")
    print(write_page(options.output, tables, blocks))


if __name__ == "__main__":
    main()
