"""`unkgcp serve`: runs behind a port."""

from __future__ import annotations

import click

from unkgcp.cli.options import count_option, examples
from unkgcp.cli.output import TIME, note

EXAMPLES = examples(
    "unkgcp serve run",
    "unkgcp serve run --port 9000",
    "unkgcp serve runs/evidence runs/ukge",
    "unkgcp serve run --host 0.0.0.0 --token-file token.txt",
)


@click.command(name="serve", epilog=EXAMPLES)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=int, default=8000, show_default=True, help="The port; 0 takes a free one.")
@click.option(
    "--token-file",
    metavar="FILE",
    help="Ask every client for the token in this file; the variable UNKGCP_TOKEN does the same.",
)
@click.option(
    "--without-token", is_flag=True, help="Listen beyond this machine and answer anyone, without a token."
)
@count_option("--max-triples", 10_000, "Triples of one request.")
@count_option("--max-body", 4 << 20, "Length of a request's body.", "BYTES")
def command(
    runs: tuple[str, ...],
    host: str,
    port: int,
    token_file: str | None,
    without_token: bool,
    max_triples: int,
    max_body: int,
) -> None:
    """Answer queries about RUN over HTTP, and in a browser at the address printed.

    Several runs are told apart by the names of their folders; the first is the one that answers where none is named.
    Only this machine can reach the service unless --host says otherwise. Nothing is written. Stop it with Ctrl-C.
    docs/service.md describes the paths; /openapi.json does so for programs.
    """
    import logging

    from unkgcp.service import Settings, require_extra

    require_extra()
    from unkgcp.service.server import Address, access, serve

    logging.basicConfig(format="%(asctime)s unkgcp: %(message)s", datefmt=TIME, level=logging.ERROR)
    address = Address(host, port)
    token, hosts = access(address, token_file, without_token)
    settings = Settings(token=token, hosts=hosts, max_triples=max_triples, max_body=max_body)
    try:
        serve(runs, address, settings, lambda url: click.echo(f"serving {', '.join(runs)} at {url}"))
    except KeyboardInterrupt:
        note("stopped")
