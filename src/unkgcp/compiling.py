"""The compiler of all compiled loops: numba, which keeps what it makes on disk if there is a place for it.

Importing this imports numba. Its places are beside the source, $NUMBA_CACHE_DIR and the user's cache folder. A service
in a container or under systemd often may write to none of them; its processes then compile for themselves, which takes
some seconds at their first call. (A folder of ours for all users would be no remedy: numba runs what it finds there.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unkgcp.errors import missing

try:
    import numba
except ModuleNotFoundError as error:
    raise missing(error) from None


def njit(*signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as `numba.njit`, with its cache on disk where there can be one."""

    compiler: Any = numba.njit

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return compiler(*signature, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return compiler(*signature, **options)(function)

    return compiled
