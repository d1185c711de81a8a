"""The one exception tree; each class carries the exit code of a command that it ends.

    InferometerError            1
    |- ConfigError              2   usage, study file, unknown name
    |- ModelError               3   the model file or its graph
    |- DataError                4   images or labels
    |- EngineError              5   an engine failed
    |  |- MissingExtra          5   the optional packages of a plug-in are not installed
    |  |- Unsupported           5   the engine, device or precision cannot do what was asked
    |  `- OutOfMemory           5   the device or the host had no memory left
    |- CalibrationError         6   ranges could not be chosen, or a table does not fit
    |  `- NothingToQuantize     6   the model has no layer with integer kernels
    |- MeterError               7   a power or energy source
    `- StoreError               8   records, sidecars, the output folder

A message says what happened, where, and how to mend it, in one line.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator

__all__ = [
    "CalibrationError",
    "ConfigError",
    "DataError",
    "EngineError",
    "InferometerError",
    "MeterError",
    "MissingExtra",
    "ModelError",
    "NothingToQuantize",
    "OutOfMemory",
    "StoreError",
    "Unsupported",
    "brief",
    "disk_full",
    "nearest",
]


class InferometerError(Exception):
    """Base of every error that a user can meet."""

    exit_code: int = 1


class ConfigError(InferometerError):
    """The command line or the study file asks for something that cannot be."""

    exit_code = 2


class ModelError(InferometerError):
    """A model file is missing, broken, or of a form that cannot be used."""

    exit_code = 3


class DataError(InferometerError):
    """Images or labels are missing, broken, or do not fit the model."""

    exit_code = 4


class EngineError(InferometerError):
    """An engine refused or failed."""

    exit_code = 5


class MissingExtra(EngineError):
    """A plug-in's optional packages are not installed; the message names the extra."""


class Unsupported(EngineError):
    """The engine cannot run this model, device or precision; the trial's status is ``unsupported``."""


class OutOfMemory(EngineError):
    """Memory ran out; the trial's status is ``out_of_memory``."""


class CalibrationError(InferometerError):
    """Activation ranges could not be chosen, or a calibration table does not fit the model."""

    exit_code = 6


class NothingToQuantize(CalibrationError):
    """The model has no INT8 form, since no layer of it has integer kernels; the status is ``unsupported``."""


class MeterError(InferometerError):
    """A meter is absent, not permitted, or gave readings that cannot be trusted."""

    exit_code = 7


class StoreError(InferometerError):
    """Records, sidecars or the output folder cannot be read or written."""

    exit_code = 8


def brief(text: object) -> str:
    """What another's error says, in one line of at most 400 characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= 400 else line[:400] + " ..."


_FULL = (errno.ENOSPC, errno.EDQUOT)


def disk_full(error: BaseException) -> bool:
    """Whether an error comes from a disk without room, or from a quota that is used up.

    Libraries turn the system's error into one of their own, which mostly keeps its words.
    """
    return any(
        (isinstance(one, OSError) and one.errno in _FULL)
        or any(os.strerror(number).lower() in str(one).lower() for number in _FULL)
        for one in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it came from."""
    seen: list[BaseException] = []
    while error not in seen:
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__ or error


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name.

    Args:
        word: What was asked for.
        known: The names there are.

    Returns:
        ``"; did you mean 'x'?"`` when one is close, else ``"; known are a, b"``.
    """
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(names) or 'none'}"
