"""Options that several commands share: where data is, how files are read, how one file is split.

Each decorator hands the command one dictionary, ready for `unkgcp.graph.load_dataset`:

    @reading_options
    @splitting_options
    def fit(data, reading, splitting, ...):
        dataset = load_dataset(data, **reading, **splitting)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import click

from unkgcp.errors import InputError

if TYPE_CHECKING:
    from unkgcp.tabular.columns import Scale

Function = Callable[..., Any]

data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    help="Look for named data sets here first (then $UNKGCP_DATA, then the cache).",
)

SEEDS = 2**63 - 1  # the largest seed that numpy and torch both take


def _parse_prefixes(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for value in values:
        name, equals, start = value.partition("=")
        if not equals or name in found:
            raise InputError(f"--prefix {value} does not give one IRI to one name: write it as NAME=IRI")
        found[name] = start
    return found or None


prefix_option = click.option(
    "--prefix",
    "prefixes",
    metavar="NAME=IRI",
    multiple=True,
    callback=_parse_prefixes,
    help="RDF: write IRIs that begin with this one as NAME:rest, or as the rest alone if NAME is empty.",
)

_READING = (
    data_dir_option,
    click.option(
        "--format",
        metavar="NAME",
        help="tsv, csv, parquet, string-links, string-actions, conceptnet, nell, ntriples, nquads or turtle; "
        "recognised if left out.",
    ),
    click.option(
        "--columns",
        metavar="H,R,T,C",
        help="Columns of head, relation, tail and confidence (or lower and upper), by name or by position from 0.",
    ),
    click.option("--header/--no-header", default=None, help="Whether the first line names the columns."),
    click.option("--language", metavar="CODE", help="ConceptNet: keep the assertions within one language."),
    click.option("--skip-missing", is_flag=True, help="Leave out facts without a confidence."),
    click.option(
        "--default-confidence", type=float, metavar="X", help="Give facts without a confidence this one."
    ),
    prefix_option,
    click.option(
        "--confidence-predicate",
        "confidence_predicates",
        metavar="IRI",
        multiple=True,
        help="RDF: what tells the confidence of a statement; recognised by names such as ex:confidence if left out.",
    ),
    click.option(
        "--confidence-scale",
        type=click.Choice(["none", "minmax", "log"]),
        help="Bring confidences into [0, 1]: not at all, linearly, or by their logarithm.",
    ),
    click.option("--cap", type=float, metavar="X", help="Cut confidences above X to X before scaling."),
    click.option("--floor", type=float, metavar="X", help="Raise confidences below X to X before scaling."),
    click.option(
        "--range", "target", type=float, nargs=2, metavar="LOW HIGH", help="Scale into [LOW, HIGH]."
    ),
)

_SPLITTING = (
    click.option(
        "--calibration", type=float, metavar="SHARE", help="Share of one file's facts to calibrate on."
    ),
    click.option("--test", type=float, metavar="SHARE", help="Share of one file's facts to test on."),
    click.option(
        "--keep-repeats-together",
        is_flag=True,
        help="Never split the rows of one triple over two parts. The promise is then about triples: with few triples "
        "and many rows each, rows are covered slightly less often.",
    ),
)


class Share(click.FloatRange):
    """A number in a range; nan, which a range lets pass, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if found != found else found


def seed_option(text: str, most: int = SEEDS) -> Callable[[Function], Function]:
    """Adds `--seed`, 0 if it is not given."""
    kind = click.IntRange(0, most)
    return click.option("--seed", type=kind, metavar="N", default=0, show_default=True, help=text)


def choice_option(
    name: str, values: list[str], text: str, argument: str | None = None
) -> Callable[[Function], Function]:
    """Adds an option with these values, the first of them if it is not given."""
    names = (name,) if argument is None else (name, argument)
    return click.option(*names, type=click.Choice(values), default=values[0], show_default=True, help=text)


def share_option(name: str, default: float, text: str) -> Callable[[Function], Function]:
    """Adds an option for a number from 0 to 1."""
    return click.option(name, type=Share(0, 1), default=default, show_default=True, help=text)


def count_option(name: str, default: int, text: str, **more: Any) -> Callable[[Function], Function]:
    """Adds an option for a number from 1 on."""
    return click.option(
        name, type=click.IntRange(min=1), default=default, show_default=True, help=text, **more
    )


device_option = click.option(
    "--device", metavar="D", default="auto", show_default=True, help="auto, cpu or cuda."
)


def examples(*lines: str) -> str:
    """The epilogue of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def reading_options(function: Function) -> Function:
    """Adds the options of reading; the command gets them as `reading`."""

    @wraps(function)
    def command(**given: Any) -> Any:
        plain = ("data_dir", "format", "columns", "header", "language", "default_confidence", "prefixes")
        reading = {name: given.pop(name) for name in plain}
        reading["confidence_predicates"] = list(given.pop("confidence_predicates")) or None
        if reading["columns"] is not None:
            reading["columns"] = parse_columns(reading["columns"])
        reading["skip_missing"] = given.pop("skip_missing") or None
        reading["scale"] = _scale(
            *(given.pop(name) for name in ("confidence_scale", "cap", "floor", "target"))
        )
        return function(
            reading={name: value for name, value in reading.items() if value is not None}, **given
        )

    return _with(_READING, command)


def parse_columns(text: str) -> list[int | str]:
    """Columns given as `subject,predicate,2`: names, and positions counted from 0."""
    return [int(part) if part.isdecimal() else part for part in map(str.strip, text.split(","))]


def _scale(
    kind: str | None, cap: float | None, floor: float | None, target: tuple[float, float] | None
) -> Scale | None:
    if kind is None:
        if cap is not None or floor is not None or target is not None:
            raise InputError("--cap, --floor and --range need --confidence-scale minmax or log")
        return None
    from unkgcp.tabular.columns import Scale

    low, high = target or (0.0, 1.0)
    return Scale(cast(Any, kind), cap=cap, floor=floor, low=low, high=high)


def splitting_options(function: Function) -> Function:
    """Adds the options of splitting one file; the command gets them as `splitting`."""

    @wraps(function)
    def command(**given: Any) -> Any:
        splitting = {name: given.pop(name) for name in ("calibration", "test", "keep_repeats_together")}
        return function(splitting=splitting, **given)

    return _with(_SPLITTING, command)


def _with(options: tuple[Callable[[Function], Function], ...], function: Function) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


# The option `--confidence`: one level or several, separated by commas.


def confidence_option(default: str, text: str) -> Callable[[Function], Function]:
    """Adds `--confidence`; the command gets a list of floats."""
    return click.option(
        "--confidence", default=default, show_default=True, metavar="LEVELS", callback=_parse, help=text
    )


def _parse(context: click.Context, parameter: click.Parameter, value: str) -> list[float]:
    levels = []
    for part in value.split(","):
        try:
            level = float(part)
        except ValueError:
            level = -1.0
        if not 0 <= level <= 1:
            raise InputError(f"--confidence {value}: {part.strip()!r} is no number from 0 to 1; try 0.9")
        if level in levels:
            raise InputError(f"--confidence {value}: {part.strip()} is there twice; leave one out")
        levels.append(level)
    return levels


# Options of `--engine ray`, gathered in one argument of the command.

NAMES = ("workers", "address", "device", "rows_per_part")


def ray_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add them to a command; it gets those that were given as a dictionary `ray`, and has an option `--engine`."""

    @wraps(command)
    def with_ray(engine: str, **arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in NAMES}
        given = {name: value for name, value in given.items() if value is not None}
        if given and engine != "ray":
            option = min(given).replace("_", "-")
            raise click.UsageError(f"--{option} is for --engine ray; add that, or leave --{option} out")
        command(engine=engine, ray=given, **arguments)

    for option in (
        click.option(
            "--rows-per-part",
            type=click.IntRange(min=1),
            metavar="N",
            help="Ray: rows that a worker answers at a time, a file each if OUT is a folder.  [default: 1048576]",
        ),
        click.option(
            "--device",
            type=click.Choice(["cpu", "cuda"]),
            help="Ray: where workers score; with cuda each takes a GPU.  [default: cpu]",
        ),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="Ray: a running cluster, or auto.  [default: $RAY_ADDRESS, or one started on this machine]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Ray: how many workers.  [default: one a CPU, or GPU, of the cluster]",
        ),
    ):
        with_ray = option(with_ray)
    return with_ray
