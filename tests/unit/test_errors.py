"""Which errors come from a full disk."""

from __future__ import annotations

import errno
import os

import pytest

from inferometer.errors import EngineError, disk_full


def raised_from(cause: Exception, error: Exception) -> Exception:
    try:
        raise error from cause
    except Exception as found:  # noqa: BLE001 (whatever was given)
        return found


NO_ROOM = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "error",
    [
        NO_ROOM,
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        raised_from(NO_ROOM, EngineError("the profile cannot be written")),
        raised_from(raised_from(NO_ROOM, ValueError("in the middle")), EngineError("at the end")),
        RuntimeError("[ONNXRuntimeError] : 1 : FAIL : write failed: no space left on device"),
    ],
)
def test_a_full_disk_is_seen_through_what_others_make_of_it(error: Exception) -> None:
    assert disk_full(error)


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EIO, os.strerror(errno.EIO)), MemoryError(), EngineError("no space for this layer")],
)
def test_other_errors_are_none(error: Exception) -> None:
    assert not disk_full(error)


def test_errors_that_came_from_one_another_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not disk_full(first)
