"""The command line: one thin command a file, each imported only when it is asked for."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from unkgcp._version import __version__
from unkgcp.errors import InputError

# command -> (module under unkgcp.cli, what `unkgcp --help` says of it), in the order shown
COMMANDS = {
    "demo": ("demo", "The whole way on the embedded graph."),
    "data": ("data", "List, describe and fetch data sets."),
    "fit": ("fit", "Train a model, calibrate it and write the run."),
    "predict": ("predict", "Score and interval for every triple of a file."),
    "evaluate": ("evaluate", "Coverage, sharpness and error of a run on test facts."),
    "report": ("report", "One HTML page about a run or a reproduction: tables, figures, facts."),
    "serve": ("serve", "Answer queries over HTTP, and in a browser."),
    "monitor": ("monitor", "Does the promise of a run still hold on new labelled facts?"),
    "conformalize": ("conformalize", "Intervals around the predictions of any model, from a CSV."),
    "reproduce": ("reproduce", "The paper's experiments: cells, tables, figures, report."),
    "rules": ("rules", "Ground soft-logic rules over a training graph."),
    "tune": ("tune", "Search hyperparameters for a data set."),
}


class LazyGroup(click.Group):
    """Lists all commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"unkgcp.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExamples:\n  unkgcp demo\n  unkgcp fit facts.tsv -o run\n"
    "  unkgcp predict run queries.tsv -o answers.tsv",
)
@click.version_option(__version__, prog_name="unkgcp")
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def cli(debug: bool) -> None:
    """Predict the confidence of facts as intervals that hold with the probability you choose."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns every error into one sentence and an exit status (2 bad input, 1 failure)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        status = cli.main(args=arguments, prog_name="unkgcp", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(_fail("stopped by the user", 130))
    except KeyboardInterrupt:
        sys.exit(_fail("stopped by the user", 130))
    except BrokenPipeError:
        # the reader of a pipe left: not an error, and Python must not complain about it at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except InputError as error:
        if debug:
            raise
        sys.exit(_fail(str(error), 2))
    except Exception as error:
        if debug:
            raise
        sys.exit(_fail(f"{error} ({type(error).__name__}; --debug shows where)", 1))


def _fail(sentence: str, status: int) -> int:
    print(f"unkgcp: {' '.join(sentence.split())}", file=sys.stderr)
    return status
