"""The command line: one thin command a file, each imported only when it is asked for."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from unkgcp.cli.output import add_manners, complain, is_quiet, note, version_text
from unkgcp.errors import InputError, TrainedFactsWarning, missing

# command -> (module under unkgcp.cli, what `unkgcp --help` says of it), in the order shown
COMMANDS = {
    "demo": ("demo", "The whole way on the embedded graph."),
    "data": ("data", "List, describe and fetch data sets."),
    "fit": ("fit", "Train a model, calibrate it and write the run."),
    "predict": ("predict", "Score and interval for every triple of a file."),
    "evaluate": ("evaluate", "Coverage, sharpness and error of a run on test facts."),
    "report": ("report", "One HTML page about a run: tables, figures, facts."),
    "serve": ("serve", "Answer queries over HTTP, and in a browser."),
    "monitor": ("monitor", "Do new labelled facts speak against the promise of a run?"),
    "update": ("update", "New facts join a run."),
    "conformalize": ("conformalize", "Intervals around the predictions of any model, from a CSV."),
    "rules": ("rules", "Ground soft-logic rules over a training graph."),
}


class LazyGroup(click.Group):
    """Lists all commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"unkgcp.cli.{COMMANDS[cmd_name][0]}")
        return add_manners(module.command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        with quiet_pipe():  # --help is printed here
            return super().make_context(*arguments, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with quiet_pipe():
            return super().invoke(ctx)


def _show_version(context: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        click.echo(version_text())
        context.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExamples:\n  unkgcp demo\n  unkgcp fit facts.tsv -o run\n"
    "  unkgcp predict run queries.tsv -o answers.tsv\n\n\b\n"
    "Bash, zsh or fish complete what you type after this line of their start file:\n"
    '  eval "$(_UNKGCP_COMPLETE=bash_source unkgcp)"     (zsh_source, fish_source)',
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version, and those of the libraries that are used.",
)
@click.option("--debug", is_flag=True, help="Show the full traceback of an error.")
def cli(debug: bool) -> None:
    """Predict the confidence of facts as intervals that hold with the probability you choose."""


add_manners(cli)


def main(arguments: list[str] | None = None) -> None:
    """Entry point: turns every error into one sentence and an exit status (2 bad input, 1 failure)."""
    # Threads that wait for each other sleep instead of spinning: on a machine that does anything else besides, training
    # and learning trees are many times faster so. OpenMP reads this when torch, numba or LightGBM first load it.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    arguments = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in arguments
    with tidy_end(), _warnings_as_sentences():
        sys.exit(_status([argument for argument in arguments if argument != "--debug"], debug))


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Show the package's own warnings as notes, without the line of code that they come from."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", TrainedFactsWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, TrainedFactsWarning):
                note(str(message))
            elif not is_quiet():
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _status(arguments: list[str], debug: bool) -> int:
    try:
        status = cli.main(args=arguments, prog_name="unkgcp", standalone_mode=False)
        return status if isinstance(status, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "unkgcp"
        return _fail(f"{error.format_message().rstrip('.')}; see {path} --help", error.exit_code)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped by the user", 130)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, InputError):
            return _fail(str(error), 2)
        if isinstance(error, ModuleNotFoundError):
            return _fail(str(missing(error)), 2)
        if isinstance(error, MemoryError):
            return _fail(str(error) or "there is too little memory for this: free some", 1)
        return _fail(f"{error} ({type(error).__name__}; --debug shows where)", 1)


def _fail(sentence: str, status: int) -> int:
    complain(f"unkgcp: {' '.join(sentence.split())}")
    return status


# How a command ends early. Told to stop, it tidies up as after Ctrl-C. When the reader of its output has gone, it ends
# without a word.

READER = "unkgcp-read"  # the name of threads that read files; `unkgcp.predict.stream` gives it
SIGNALS = ("SIGTERM", "SIGHUP")


@contextmanager
def tidy_end() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the program through the usual clean-up, so that no partial file stays.

    The exit status is then 143 or 129. A signal that was ignored before, as under nohup, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        for other in before:
            # a closed terminal sends two signals: let the clean-up finish
            signal.signal(other, signal.SIG_IGN)
        raise SystemExit(128 + number)

    signals = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    before = {n: handler for n in signals if (handler := signal.getsignal(n)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    except SystemExit as ending:
        # all is tidy by now, but Python would wait, perhaps for ever, for a thread that reads from a pipe
        if any(thread.name == READER for thread in threading.enumerate()):
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError, AttributeError):
                    stream.flush()
            os._exit(ending.code if isinstance(ending.code, int) else 1)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """Inside, it is no error that the reader of standard output goes early; Python does not complain at exit either."""
    try:
        yield
    except BrokenPipeError as error:
        if not _reader_has_gone():
            raise RuntimeError(f"a pipe of this program broke ({error.strerror})") from error
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None


def _reader_has_gone() -> bool:
    """Whether nobody reads standard output any more; True where that cannot be told."""
    try:
        watch = select.poll()
        watch.register(sys.stdout.fileno(), select.POLLOUT)
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in watch.poll(0))
    except (OSError, ValueError, AttributeError):
        return True
