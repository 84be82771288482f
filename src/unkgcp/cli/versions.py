"""`unkgcp --version`: the version, and what is installed of the libraries that it uses, read without importing them."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

from unkgcp._version import __version__

NEEDED = "needed"
REQUIREMENT = re.compile(r"([\w.-]+)[^;]*(?:;.*extra == ['\"]([\w-]+)['\"])?")


def libraries() -> dict[str, dict[str, str | None]]:
    """Version of each library, None if it is not installed, by the extra that brings it: `needed`, `train`, ...

    What the package asks for is what its installation says; nothing where it is not installed, as in a bare checkout.
    """
    try:
        asked = requires("unkgcp") or []
    except PackageNotFoundError:
        asked = []
    found: dict[str, dict[str, str | None]] = {NEEDED: {}}
    for requirement in asked:
        match = REQUIREMENT.match(requirement)
        if match is None or match[1] == "unkgcp" or match[2] == "dev":
            continue  # tools of developers, and an extra that only gathers others
        found.setdefault(match[2] or NEEDED, {})[match[1]] = _version(match[1])
    return found


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def version_text() -> str:
    """`unkgcp X` alone in the first line, for scripts; then a line for Python, and one for each extra."""
    lines = [
        f"unkgcp {__version__}",
        f"Python {platform.python_version()} on {platform.platform(terse=True)}",
    ]
    for extra, found in libraries().items():
        shown = ", ".join(f"{library} {number or 'missing'}" for library, number in found.items())
        if shown:
            remedy = "" if all(found.values()) else f" (pip install 'unkgcp[{extra}]')"
            lines.append(f"{extra}: {shown}{remedy}")
    return "\n".join(lines)


def one_line() -> str:
    """The same in a line, for logs: what is installed, without what is missing."""
    installed = {
        library: number for found in libraries().values() for library, number in found.items() if number
    }
    shown = (f"{library} {number}" for library, number in installed.items())
    return ", ".join([f"unkgcp {__version__}", f"Python {platform.python_version()}", *shown])
