"""Options that several commands share: where data is, how files are read, how one file is split, which levels.

`reading_options` and `splitting_options` each give the command one dictionary, ready for `unkgcp.graph.load_dataset`:

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
Decorator = Callable[[Function], Function]
SEEDS = 2**63 - 1  # the largest seed that numpy and torch both take

data_dir_option = click.option(
    "--data-dir",
    metavar="DIR",
    help="Look for named data sets here first (then $UNKGCP_DATA, then the cache).",
)


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


def columns_option(metavar: str, text: str) -> Decorator:
    """Adds `--columns`, given as `subject,predicate,2`; the command gets a list of names and positions, or None."""

    def parse(context: click.Context, parameter: click.Parameter, value: str | None) -> Any:
        return value and [
            int(part) if part.isdecimal() else part for part in map(str.strip, value.split(","))
        ]

    return click.option("--columns", metavar=metavar, callback=parse, help=text)


_READING = (
    data_dir_option,
    click.option(
        "--format",
        metavar="NAME",
        help="tsv, csv, parquet, string-links, string-actions, conceptnet, nell, ntriples, nquads or turtle; "
        "recognised if left out.",
    ),
    columns_option(
        "H,R,T,C",
        "Columns of head, relation, tail and confidence (or lower and upper), by name or by position from 0.",
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
    """A number in a range. Unlike `click.FloatRange` it refuses nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if found != found else found


def seed_option(text: str, most: int = SEEDS) -> Decorator:
    """Adds `--seed`, 0 if it is not given."""
    kind = click.IntRange(0, most)
    return click.option("--seed", type=kind, metavar="N", default=0, show_default=True, help=text)


def choice_option(name: str, values: list[str], text: str) -> Decorator:
    """Adds an option with these values, the first of them if it is not given."""
    return click.option(name, type=click.Choice(values), default=values[0], show_default=True, help=text)


def share_option(name: str, default: float, text: str) -> Decorator:
    """Adds an option for a number from 0 to 1."""
    return click.option(name, type=Share(0, 1), default=default, show_default=True, help=text)


def count_option(name: str, default: int | None, text: str, metavar: str | None = None) -> Decorator:
    """Adds an option for a number from 1 on; the help shows a default that is not None."""
    kind = click.IntRange(min=1)
    return click.option(
        name, type=kind, default=default, show_default=default is not None, metavar=metavar, help=text
    )


device_option = click.option(
    "--device", metavar="D", default="auto", show_default=True, help="auto, cpu or cuda."
)


def examples(*lines: str) -> str:
    """The epilogue of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def reading_options(function: Function) -> Function:
    """Adds the options of reading; the command gets those that were given as `reading`."""

    @wraps(function)
    def command(
        skip_missing: bool,
        confidence_predicates: tuple[str, ...],
        confidence_scale: str | None,
        cap: float | None,
        floor: float | None,
        target: tuple[float, float] | None,
        **given: Any,
    ) -> Any:
        plain = ("data_dir", "format", "columns", "header", "language", "default_confidence", "prefixes")
        reading = {name: given.pop(name) for name in plain}
        reading["confidence_predicates"] = list(confidence_predicates) or None
        reading["skip_missing"] = skip_missing or None
        reading["scale"] = _scale(confidence_scale, cap, floor, target)
        return function(reading=_given(reading), **given)

    return _with(_READING, command)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


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


def _with(options: tuple[Decorator, ...], function: Function) -> Function:
    for option in reversed(options):
        function = option(function)
    return function


def confidence_option(default: str, text: str) -> Decorator:
    """Adds `--confidence`: one level or several, separated by commas. The command gets a list of floats."""
    return click.option(
        "--confidence",
        default=default,
        show_default=True,
        metavar="LEVELS",
        callback=_parse_levels,
        help=text,
    )


def _parse_levels(context: click.Context, parameter: click.Parameter, value: str) -> list[float]:
    levels: list[float] = []
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


_RAY = (
    count_option(
        "--workers", None, "Ray: how many workers.  [default: one a CPU, or GPU, of the cluster]", "N"
    ),
    click.option(
        "--address",
        metavar="HOST:PORT",
        help="Ray: a running cluster, or auto.  [default: $RAY_ADDRESS, or one started on this machine]",
    ),
    click.option(
        "--device",
        type=click.Choice(["cpu", "cuda"]),
        help="Ray: where workers score; with cuda each takes a GPU.  [default: cpu]",
    ),
    count_option(
        "--rows-per-part",
        None,
        "Ray: rows that a worker answers at a time, a file each if OUT is a folder.  [default: 1048576]",
        "N",
    ),
)


def ray_options(function: Function) -> Function:
    """Adds the options of `--engine ray`; the command, which has `--engine`, gets those that were given as `ray`."""

    @wraps(function)
    def command(engine: str, **values: Any) -> None:
        ray = _given({name: values.pop(name) for name in ("workers", "address", "device", "rows_per_part")})
        if ray and engine != "ray":
            option = min(ray).replace("_", "-")
            raise click.UsageError(f"--{option} is for --engine ray; add that, or leave --{option} out")
        function(engine=engine, ray=ray, **values)

    return _with(_RAY, command)
