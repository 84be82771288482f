"""Tutorials: Python files of cells, which `make docs` runs and shows with what they printed and drew.

A file in docs/tutorials is a notebook in the percent format, which Jupyter (with jupytext) and editors open as one: a
line `# %%` begins code, `# %% [markdown]` text in comments, and a cell of lines `# !unkgcp ...` runs the command. Here
cells run in this process, in a folder of their own, without Jupyter. Figures are made by the cell that shows them, and
a cell that fails stops the build, and the test that runs the same files.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shlex
import sys
import tempfile
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

FOLDER = "tutorials"
MARK = re.compile(r"^# %%( \[markdown\])?.*\n", re.M)
ALARM = 3  # the exit status of `unkgcp monitor` when it has something to say: no failure of the tutorial


@dataclass
class Cell:
    """A piece of a notebook: `kind` is markdown, code or command; `outputs` are pairs of a MIME type and its text."""

    kind: str
    text: str
    outputs: list[tuple[str, str]] = field(default_factory=list)


def cells(source: str) -> list[Cell]:
    """The cells of a file; what stands before the first mark is left out."""
    _, *parts = MARK.split(source)
    found = []
    for markdown, text in zip(parts[::2], parts[1::2], strict=True):
        text, kind = text.strip("\n"), "code"
        if markdown:
            text, kind = re.sub(r"^# ?", "", text, flags=re.M), "markdown"
        elif text and all(line.startswith("# !") for line in text.splitlines()):
            text, kind = re.sub(r"^# !", "", text, flags=re.M), "command"
        found.append(Cell(kind, text))
    return found


def run(path: Path, folder: Path) -> list[Cell]:
    """Run all cells in order, in `folder`; an error is raised as it is, with the cell's number in its traceback."""
    os.environ.setdefault("MPLBACKEND", "Agg")
    found = cells(path.read_text(encoding="utf-8"))
    world: dict[str, Any] = {"__name__": "__main__"}
    with chdir(folder):
        for number, cell in enumerate(found, 1):
            if cell.kind == "code":
                _run_code(cell, f"{path.name}, cell {number}", world)
            elif cell.kind == "command":
                _run_commands(cell)
    return found


def _run_code(cell: Cell, name: str, world: dict[str, Any]) -> None:
    tree = ast.parse(cell.text, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), world)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), world)
    if printed.getvalue():
        cell.outputs.append(("text/plain", printed.getvalue()))
    figures = _figures()
    cell.outputs += [("image/svg+xml", figure) for figure in figures]
    if value is not None and not figures:
        html = hasattr(value, "_repr_html_")
        cell.outputs.append(("text/html", value._repr_html_()) if html else ("text/plain", repr(value)))


def _run_commands(cell: Cell) -> None:
    """Run `unkgcp` in this process; of its output, what a pipe would get is shown, without the progress."""
    from unkgcp.cli import main

    kept, said = io.BytesIO(), io.StringIO()
    printed = io.TextIOWrapper(kept, encoding="utf-8", write_through=True)  # answers are written as bytes
    for line in cell.text.splitlines():
        program, *arguments = shlex.split(line)
        if program != "unkgcp":
            raise ValueError(f"a tutorial runs unkgcp and no other command: {line}")
        try:
            with redirect_stdout(printed), redirect_stderr(said):
                main(arguments)
        except SystemExit as end:
            if end.code not in (0, None, ALARM):
                raise RuntimeError(f"{line}: exit status {end.code}: {said.getvalue()}") from None
    if kept.getvalue():
        cell.outputs.append(("text/plain", kept.getvalue().decode()))


def _figures() -> list[str]:
    """The figures that are open, as SVG that is the same each time; they are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    drawn = []
    for number in pyplot.get_fignums():
        file = io.StringIO()
        with pyplot.rc_context({"svg.hashsalt": FOLDER}):
            pyplot.figure(number).savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
        drawn.append(file.getvalue())
    pyplot.close("all")
    return drawn


def notebook(found: list[Cell]) -> str:
    """The cells with their outputs as a Jupyter notebook."""
    written = []
    for number, cell in enumerate(found):
        lines = f"!{cell.text}".replace("\n", "\n!") if cell.kind == "command" else cell.text
        entry: dict[str, Any] = {
            "cell_type": "markdown",
            "id": f"cell-{number}",
            "metadata": {},
            "source": lines,
        }
        if cell.kind != "markdown":
            outputs = [
                {"output_type": "display_data", "metadata": {}, "data": {kind: text}}
                for kind, text in cell.outputs
            ]
            entry |= {"cell_type": "code", "execution_count": None, "outputs": outputs}
        written.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": written, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1)


def page(found: list[Cell], name: str) -> tuple[str, dict[str, str]]:
    """The cells as a Markdown page, and its figures by file name."""
    lines, figures = [], {}
    for cell in found:
        shown = {"code": "python", "command": "console"}.get(cell.kind)
        text = cell.text if cell.kind != "command" else "$ " + cell.text.replace("\n", "\n$ ")
        lines.append(f"```{shown}\n{text}\n```" if shown else text)
        for kind, output in cell.outputs:
            if kind == "image/svg+xml":
                file = f"{name}-{len(figures) + 1}.svg"
                figures[file] = output
                lines.append(f"![What the cell above draws]({file})")
            elif kind == "text/html":
                lines.append('<div class="output">\n' + re.sub(r"\n\s*\n", "\n", output) + "\n</div>")
            else:
                lines.append(f"```{{.text .output}}\n{output.rstrip()}\n```")
    note = f"This page is a notebook: [download it]({name}.ipynb) with its outputs. `make test` runs it."
    title, *rest = lines
    heading, _, below = title.partition("\n")
    return "\n\n".join([heading, note, below.strip(), *rest]) + "\n", figures


LINK = re.compile(rf"\]\(((?:\.\./)*(?:{FOLDER}/)?)([\w-]+)\.py\)")


def on_page_markdown(markdown: str, *, config: MkDocsConfig, **more: Any) -> str:
    """Pages link to a tutorial's source, which a code host can show; here the link leads to its page."""
    folder = Path(config.docs_dir) / FOLDER

    def moved(match: re.Match[str]) -> str:
        return f"]({match[1]}{match[2]}.md)" if (folder / f"{match[2]}.py").exists() else match[0]

    return LINK.sub(moved, markdown)


_MADE: dict[str, list[Cell]] = {}
"""What ran in this process, by source: whoever watches the pages does not run unchanged tutorials again."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    for path in sorted((Path(config.docs_dir) / FOLDER).glob("*.py")):
        source, name = path.read_text(encoding="utf-8"), path.stem
        if source not in _MADE:
            with tempfile.TemporaryDirectory() as folder:
                _MADE[source] = run(path, Path(folder))
        text, figures = page(_MADE[source], name)
        made = {f"{name}.md": text, f"{name}.ipynb": notebook(_MADE[source]), **figures}
        for file, content in made.items():
            files.append(File.generated(config, f"{FOLDER}/{file}", content=content))
    return files
