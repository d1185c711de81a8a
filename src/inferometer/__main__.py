"""The command ``inferometer``, also as ``python -m inferometer``."""

import os
import signal
import sys
from types import FrameType, TracebackType

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Ctrl-C and SIGTERM end it quietly also before the command begins, when there is nothing to tidy up:
    imports take a second, and an exception inside them would be a page long. After it has ended its own
    status counts, but to Ctrl-C.
    """
    signal.signal(signal.SIGINT, _quit)
    signal.signal(signal.SIGTERM, _quit)
    sys.excepthook = _last_word
    from inferometer.cli.main import main as command_line

    code = command_line()
    signal.signal(signal.SIGINT, _quit)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        sys.stderr.flush()
    except OSError:  # of a full disk: Python would end with a status of its own for it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.exit(code)


def _quit(number: int, frame: FrameType | None) -> None:
    os.write(2, b"inferometer: interrupted\n")
    os._exit(130)


def _last_word(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Libraries turn a Ctrl-C inside them into errors of their own; it stays a Ctrl-C."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            _quit(signal.SIGINT, None)
        cause = cause.__cause__ or cause.__context__
    sys.__excepthook__(kind, error, trace)


if __name__ == "__main__":
    main()
