"""Functions that numba compiles to machine code: how they are declared, and loaded or done without.

A module of compiled functions imports where numba is installed (the extra ``fast``). Whoever has a use for
it asks ``load``, and takes a plain form where the answer is None: numba may be absent, not fit the NumPy
around it, or find a damaged cache.
"""

from __future__ import annotations

import importlib
import logging
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["NUMBA_FAULTS", "compiled", "load"]

NUMBA_FAULTS = (
    ImportError, OSError, RuntimeError, SystemError, ValueError, EOFError, pickle.UnpicklingError,
    AttributeError, IndexError, KeyError, TypeError,
)  # fmt: skip
"""What a numba that does not fit its surroundings raises, and reading a damaged cache of compiled code."""

_log = logging.getLogger(__name__)


def compiled(signature: Any = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that numba compiles, to run without Python's lock.

    Args:
        signature: numba's types of the arguments and the result: compiled at once, for nothing else. None:
            compiled at the first call, and again for every other set of types.

    Returns:
        The decorator. The machine code is kept on disk where there is a place to write.
    """
    import numba

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            made: Callable[..., Any] = numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:  # neither beside the source nor in the user's cache is a place to write
            made = numba.njit(signature, nogil=True)(function)
        return made

    return decorate


def load(name: str, try_out: Callable[[ModuleType], None], without: str) -> ModuleType | None:
    """A module of compiled functions, tried out; None where numba is not installed or does not work.

    Args:
        name: The module's full name.
        try_out: Calls what is going to be used. What it raises of ``NUMBA_FAULTS`` is logged as a warning.
        without: What happens instead, for that warning.
    """
    try:
        module = importlib.import_module(name)
        try_out(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "inferometer":
            raise
        return None
    except NUMBA_FAULTS as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        _log.warning("numba does not work here (%s): %s", reason, without)
        return None
    return module
