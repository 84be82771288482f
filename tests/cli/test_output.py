"""What all commands share: --json, --quiet and --verbose, lines with the time, --version and completion."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from unkgcp._version import __version__
from unkgcp.cli import COMMANDS, cli, main, output
from unkgcp.cli.output import json_option, print_json, print_text
from unkgcp.errors import EXTRAS

Run = Callable[..., Any]
WITHOUT_FIGURES = {
    "predict": "answers are a table: TSV, CSV or Parquet",
    "conformalize": "likewise",
    "report": "writes a page",
    "serve": "answers over HTTP, in JSON",
    "completion": "prints lines for a shell",
    "data fetch": "prints a folder",
}
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ")


def commands() -> Iterator[tuple[str, click.Command]]:
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", found) for inner, found in command.commands.items())
        else:
            yield name, command


def test_every_command_can_be_quiet_or_verbose_and_gives_its_figures_as_json() -> None:
    for name, command in commands():
        options = [option for parameter in command.params for option in parameter.opts]
        assert {"--quiet", "--verbose"} < set(options), name
        assert len(options) == len(set(options)), "none is there twice"
        assert ("--json" in options) == (name not in WITHOUT_FIGURES), name


def test_there_are_few_options() -> None:
    """Every option is one more thing to learn."""
    named = {
        name: {max(option.opts, key=len) for option in command.params if isinstance(option, click.Option)}
        for name, command in [("unkgcp", cli), *commands()]
    }
    assert len(set().union(*named.values())) <= 55
    assert len(named["fit"]) <= 24


def test_json_is_one_object_with_figures_as_they_are(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    found = {"third": np.float64(1 / 3), "none": float("nan"), "all": np.arange(2), "within": ({1: np.inf},)}

    @click.command()
    @json_option
    def show() -> None:
        print_text("a third: 0.333")
        print_json(found)

    monkeypatch.setitem(cli.commands, "show", show)
    monkeypatch.setattr(cli, "get_command", lambda context, name: cli.commands[name])
    assert run_command("show").out == "a third: 0.333\n"
    expected = {"third": 1 / 3, "none": None, "all": [0, 1], "within": [{"1": None}]}
    assert json.loads(run_command("show", "--json").out) == expected


def test_quiet_leaves_the_result(run_command: Run, fitted: Path, small: Path) -> None:
    usual, quiet = (run_command("predict", fitted, small / "facts.tsv", *more) for more in ((), ("-q",)))
    assert "predicting: " in usual.err
    assert (quiet.err, quiet.out) == ("", usual.out)
    failed = run_command("--quiet", "predict", small / "nowhere", small / "facts.tsv")
    assert failed.err.startswith("unkgcp: ")
    assert (failed.status, failed.err.count("\n")) == (2, 1)
    assert "predicting: " in run_command("predict", fitted, small / "facts.tsv").err, (
        "only that call was quiet"
    )


def test_verbose_tells_versions_sizes_and_times(run_command: Run, fitted: Path) -> None:
    usual, verbose = (run_command("evaluate", fitted, *more) for more in ((), ("--verbose",)))
    assert verbose.out == usual.out
    lines = verbose.err.splitlines()
    assert all(STAMPED.match(line) for line in lines)
    assert f"unkgcp {__version__}, Python {sys.version.split()[0]} on " in lines[0]
    assert f"numpy {importlib.metadata.version('numpy')}" in lines[0]
    said = "\n".join(lines)
    assert re.search(rf"{fitted}: a run of unkgcp, [\d,]+ calibration facts: took [\d.]+ s", said)
    assert re.search(
        r"facts\.tsv: train 1,\d{3}, calibration \d{3}, test \d{3} facts, .*: took [\d.]+ s", said
    )
    assert re.search(r" took [\d.]+ s$", lines[-1])


def test_quiet_and_verbose_do_not_go_together(run_command: Run) -> None:
    for arguments in (("-q", "data", "list", "-v"), ("data", "list", "-v", "-q")):
        done = run_command(*arguments)
        assert (done.status, done.out) == (2, "")
        assert "--quiet and --verbose do not go together" in done.err


class Terminal:
    """Keeps what is written to it."""

    closed = False
    encoding = "utf-8"

    def __init__(self, terminal: bool) -> None:
        self.terminal, self.text = terminal, ""

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        return


@pytest.mark.parametrize("watched", [True, False])
def test_lines_have_the_time_where_nobody_watches(watched: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal(watched)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    output.say("a note")
    with output.Reporter("training", total=2) as reporter:
        reporter.update(1, "loss 0.5")
    output.complain("unkgcp: an error")
    *lines, last = stream.text.splitlines()
    assert last.endswith("unkgcp: an error")
    assert not STAMPED.search(last), "an error is the sentence that scripts look for"
    if watched:
        assert lines[0] == "a note"
        assert not STAMPED.search(stream.text)
        assert "\x1b[" in stream.text, "a bar is drawn"
    else:
        assert [STAMPED.sub("", line, count=1) for line in lines] == ["a note", "training: 1 of 2 loss 0.5"]
        assert all(STAMPED.match(line) for line in lines)


def test_work_without_a_step_ends_at_100_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal(True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with output.Reporter("calibrating"):
        pass
    assert "100%" in stream.text.rpartition("calibrating")[2]


def test_version_tells_what_is_installed_and_what_is_missing(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(output.EXTRAS, "rdf", ("no-such",))
    done = run_command("--version")
    first, python, *extras = done.out.splitlines()
    assert (done.status, first) == (0, f"unkgcp {__version__}")
    assert python.startswith(f"Python {sys.version.split()[0]} on ")
    shown = dict(line.split(": ", 1) for line in extras)
    assert set(shown) == {"needed", *EXTRAS}
    assert f"torch {importlib.metadata.version('torch')}" in shown["train"]
    assert shown["rdf"] == "no-such missing"
    needed = [line for line in importlib.metadata.requires("unkgcp") or [] if "extra ==" not in line]
    assert {re.split("[^A-Za-z]", line)[0].lower() for line in needed} == {*map(str.lower, output.NEEDED)}


def test_click_completes_words(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The line in the help of `unkgcp` makes a shell ask like this."""
    for words, offered in (("unkgcp mon", "plain,monitor"), ("unkgcp fit --qu", "plain,--quiet")):
        monkeypatch.setenv("_UNKGCP_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit):
            main([])
        assert offered in capfd.readouterr().out.splitlines()
