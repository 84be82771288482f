"""`unkgcp serve`: runs behind a port."""

from __future__ import annotations

import os
from typing import Any, TextIO

import click

from unkgcp.cli.options import WORDS, config_option, examples
from unkgcp.cli.output import TIME, note
from unkgcp.errors import InputError

SETTINGS = {
    "allowed_host": list,
    "access_log": str,
    "cors_origin": list,
    "root_path": str,
    "max_triples": int,
    "max_body": int,
    "grace": int,
    "without_token": bool,
}
"""Settings of `--config`, or of variables such as UNKGCP_MAX_BODY."""


@click.command(
    name="serve",
    epilog=examples(
        "unkgcp serve run",
        "unkgcp serve run --port 9000",
        "unkgcp serve runs/evidence runs/ukge",
        "unkgcp serve run --host 0.0.0.0 --token-file token.txt --access-log -",
        "UNKGCP_ROOT_PATH=/kg unkgcp serve run --allowed-host graphs.example.org",
        "unkgcp serve run --config service.yaml",
    ),
    context_settings={"auto_envvar_prefix": "UNKGCP"},
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, envvar="UNKGCP_RUNS")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port; 0 takes a free one.",
)
@click.option(
    "--token-file",
    type=click.File(encoding="ascii", errors="replace"),
    metavar="FILE",
    help="Ask every client for the token in this file; the variable UNKGCP_TOKEN does the same.",
)
@click.option(
    "--allowed-host",
    multiple=True,
    metavar="NAME",
    help="A host name to answer to, besides those of this machine; may be given again.",
)
@click.option(
    "--access-log", metavar="FILE", help="Write one line of JSON a request to FILE; - is standard output."
)
@config_option(SETTINGS)
def command(
    runs: tuple[str, ...],
    host: str,
    port: int,
    token_file: TextIO | None,
    allowed_host: tuple[str, ...],
    access_log: str | None,
    config: dict[str, Any],
) -> None:
    """Answer queries about RUN over HTTP, and in a browser at the address printed.

    Several runs are told apart by the names of their folders; the first is the one that answers where none is named.
    Only this machine can reach the service unless --host says otherwise. SIGHUP loads the runs again, and so does POST
    /v1/reload where there is a token; the old ones answer until the new ones are verified. Stop it with Ctrl-C.
    docs/service.md describes the paths; /openapi.json does so for programs.

    Every option and every setting of --config can be a variable: UNKGCP_PORT for --port, UNKGCP_MAX_BODY for max_body.
    An option counts more than a variable, and a variable more than --config. Settings without an option are:
    cors_origin, sites whose pages may ask; root_path, under which a proxy shows it (/kg); max_triples (10,000) and
    max_body (4 MiB, in bytes) of a request; grace, the seconds after SIGTERM within which it stops (25); without_token,
    to answer anyone on a --host that other machines can reach.
    """
    import logging

    from unkgcp.service.server import TOKEN_VARIABLE, access, listen, serve
    from unkgcp.service.settings import Settings

    logging.basicConfig(format="%(asctime)s unkgcp: %(message)s", datefmt=TIME, level=logging.ERROR)
    logging.getLogger("unkgcp.service").setLevel(logging.WARNING)
    options = {"allowed_host": allowed_host, "access_log": access_log}
    values = {**config, **_variables(), **{name: value for name, value in options.items() if value}}
    values["root_path"] = values.get("root_path", "").rstrip("/")
    values["cors_origin"] = tuple(values.get("cors_origin", ()))
    secret = os.environ.get(TOKEN_VARIABLE) if token_file is None else token_file.read()
    token, hosts = access(host, secret, values.pop("without_token", False), values.pop("allowed_host", ()))
    settings = Settings(token, hosts, **values)
    try:
        with listen(host, port) as listener:
            serve(runs, listener, settings, lambda url: click.echo(f"serving {', '.join(runs)} at {url}"))
    except KeyboardInterrupt:
        note("stopped")


def _variables() -> dict[str, Any]:
    """The settings that stand in variables; the entries of a list are separated by blanks."""
    values: dict[str, Any] = {}
    for name, kind in SETTINGS.items():
        variable = f"UNKGCP_{name.upper()}"
        if variable in os.environ:
            text = os.environ[variable]
            try:
                values[name] = text.split() if kind is list else click.types.convert_type(kind)(text)
            except click.BadParameter:
                raise InputError(f"{variable} is {text!r} but must be {WORDS[kind]}") from None
    return values
