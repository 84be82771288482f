"""The compiler of all compiled loops: numba, which keeps what it makes on disk if there is a place for it.

Importing this imports numba. Its places are beside the source, $NUMBA_CACHE_DIR and the user's cache folder. A service
in a container or under systemd often may write to none of them; its processes then compile for themselves, which takes
some seconds at their first call. (A folder of ours for all users would be no remedy: numba runs what it finds there.)

Before numba looks into its cache it loads all that it could compile with, SciPy's linear algebra among it, which takes
longer than fifty queries take to be answered. Loops that answer queries are loaded `alone` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unkgcp.errors import missing

try:
    import numba
    from numba.core import caching, runtime
except ModuleNotFoundError as error:
    raise missing(error) from None

TRIED = ((0, 60), (0, 68))
"""The first and the last version of numba with which loading alone was tried; others load as they always do."""


_caching: Any = caching
_runtime: Any = runtime


class AloneCache(_caching.FunctionCache):  # type: ignore[misc]
    """numba's cache of a function on disk, from which one is loaded without what only compiling needs.

    Compiled code needs the part that hands out memory for arrays, and nothing else. If the function is not in the
    cache, the compiler is made ready by numba itself, as always.
    """

    def load_overload(self, signature: Any, context: Any) -> Any:
        _runtime.rtsys.initialize(context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, context)


def njit(*signature: Any, alone: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator as `numba.njit`, with its cache on disk where there can be one.

    `alone`, for functions without a signature: what is in the cache is loaded by `AloneCache`. Not for parallel loops,
    and their modules should ask arrays for no `sum` or `max`: that alone would load SciPy.
    """
    compiler: Any = numba.njit

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            made = compiler(*signature, cache=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            return compiler(*signature, **options)(function)
        if alone and TRIED[0] <= numba.version_info.short <= TRIED[1]:
            made._cache = AloneCache(function)
        return made

    return compiled
