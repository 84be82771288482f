"""Options that several commands share: where data is, how files are read, how one file is split, which levels.

`reading_options` and `splitting_options` each give the command one dictionary, ready for `unkgcp.graph.load_dataset`:

    @reading_options
    @splitting_options
    def fit(data, reading, splitting, ...):
        dataset = load_dataset(data, **reading, **splitting)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
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
        help="tsv, csv, parquet, string-links, string-actions, string-export, conceptnet, nell, ntriples, nquads or "
        "turtle; recognised if left out.",
    ),
    columns_option(
        "H,R,T,C",
        "Columns of head, relation, tail and confidence (or lower and upper), by name or by position from 0.",
    ),
    click.option(
        "--confidence-scale",
        "scale",
        metavar="SCALE",
        callback=lambda context, parameter, text: None if text is None else _scale(text),
        help="How numbers become confidences: LOW,HIGH (0,1000: nothing and certainty), or minmax or log, which take "
        "both ends from the data; none if they are confidences already.",
    ),
)
# settings of reading that have no option: the arguments of `unkgcp.read` of these names
READING = {
    "header": bool,
    "skip_missing": bool,
    "default_confidence": float,
    "prefixes": dict,
    "confidence_predicates": list,
    "scale": dict,
}
WORDS = {bool: "true or false", float: "a number", int: "a whole number", str: "text", list: "a list",
         dict: "a mapping"}  # fmt: skip

_SPLITTING = (
    click.option(
        "--split",
        "shares",
        metavar="CAL,TEST",
        callback=lambda context, parameter, text: None if text is None else _shares(text),
        help="Shares of one file's facts to calibrate on and to test on.  [default: 0.07,0.08]",
    ),
    click.option(
        "--hold-out",
        metavar="UNITS",
        help="How one file's facts are held out: by pairs, rows, entities or triples, or several of them, separated by "
        "commas. The promise is for queries that are held out alike.  [default: pairs,rows]",
    ),
    click.option(
        "--symmetric",
        metavar="auto|none|REL,...",
        help="Relations of which both directions are one fact; auto takes those that are listed so.  "
        "[default: auto for one file, none for data that come split]",
    ),
)


class Share(click.FloatRange):
    """A number in a range. Unlike `click.FloatRange` it refuses nan."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value} is not a number", param, ctx) if number != number else number


def seed_option(text: str, largest: int = SEEDS) -> Decorator:
    """Adds `--seed`, 0 if it is not given."""
    kind = click.IntRange(0, largest)
    return click.option("--seed", type=kind, metavar="N", default=0, show_default=True, help=text)


def choice_option(name: str, values: list[str], text: str) -> Decorator:
    """Adds an option with these values, the first of them if it is not given."""
    return click.option(name, type=click.Choice(values), default=values[0], show_default=True, help=text)


def share_option(name: str, default: float, text: str) -> Decorator:
    """Adds an option for a number from 0 to 1."""
    return click.option(name, type=Share(0, 1), default=default, show_default=True, help=text)


device_option = click.option(
    "--device", metavar="D", default="auto", show_default=True, help="auto, cpu or cuda."
)


def examples(*lines: str) -> str:
    """The epilogue of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def config_option(keys: Mapping[str, type], more: str = "") -> Decorator:
    """Adds `--config`, a YAML file of settings; the command gets them as `config`, checked if they are among `keys`.

    Others are refused, unless `more` says in the help what they are; the command then looks after them itself.
    """

    def parse(context: click.Context, parameter: click.Parameter, path: str | None) -> dict[str, Any]:
        if path is None:
            return {}
        from unkgcp.training.config import settings_in

        settings, context.meta["config"] = settings_in(path), path
        for name, value in settings.items():
            if name in keys:
                check_setting(path, name, value, keys[name])
            elif not more:
                near = get_close_matches(str(name), keys, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(keys)}"
                raise InputError(f"{path}: unknown key {name!r}; {hint}")
        return settings

    listed = ", ".join([*keys, *([more] if more else [])])
    return click.option(
        "--config", metavar="FILE", callback=parse, help=f"YAML of settings without an option: {listed}."
    )


def check_setting(path: str, name: str, value: Any, kind: type) -> None:
    """InputError if a setting of the file at `path` is not of this kind."""
    fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
    if not fits or (kind in (int, float) and isinstance(value, bool)):
        raise InputError(f"{path}: {name} is {value!r} but must be {WORDS[kind]}")


def reading_options(function: Function) -> Function:
    """Adds the options of reading and `--config`; the command gets what was given as `reading`."""

    def without_config(config: dict[str, Any], **values: Any) -> Any:
        return function(**values)

    return reading_and_settings({})(wraps(function)(without_config))


def reading_and_settings(keys: Mapping[str, type], more: str = "") -> Decorator:
    """The same for a command with further settings in `--config`, which it gets as `config`: see `config_option`."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def command(config: dict[str, Any], **values: Any) -> Any:
            reading = {name: values.pop(name) for name in ("data_dir", "format", "columns", "scale")}
            rest = {name: value for name, value in config.items() if name not in READING}
            return function(reading={**reading_settings(config), **_given(reading)}, config=rest, **values)

        return _with((*_READING, config_option({**READING, **keys}, more)), command)

    return decorate


def reading_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that are arguments of `unkgcp.read`."""
    reading = {name: value for name, value in settings.items() if name in READING}
    if "scale" in reading:
        from unkgcp.tabular.columns import Scale

        try:
            reading["scale"] = Scale(**reading["scale"])
        except TypeError:
            raise InputError(
                f"the setting scale is {reading['scale']} but has kind, floor, cap, low, high and unit"
            ) from None
    return reading


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _scale(text: str) -> Scale:
    from unkgcp.tabular.columns import Scale

    if text in ("none", "minmax", "log"):
        return Scale(cast(Any, text))
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError(
            f"--confidence-scale {text}: expected LOW,HIGH such as 0,1000, or minmax, log or none"
        ) from None
    return Scale(unit=high) if low == 0 < high else Scale("minmax", floor=low, cap=high)


def _shares(text: str) -> tuple[float, float]:
    try:
        calibration, test = map(float, text.split(","))
    except ValueError:
        raise InputError(
            f"--split {text}: expected the shares of calibration and test, such as 0.07,0.08"
        ) from None
    return calibration, test


def splitting_options(function: Function) -> Function:
    """Adds the options of splitting one file; the command gets them as `splitting`."""

    @wraps(function)
    def command(
        shares: tuple[float, float] | None, hold_out: str | None, symmetric: str | None, **values: Any
    ) -> Any:
        calibration, test = shares or (None, None)
        splitting = _given(
            {"calibration": calibration, "test": test, "hold_out": hold_out, "symmetric": symmetric}
        )
        return function(splitting=splitting, **values)

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
