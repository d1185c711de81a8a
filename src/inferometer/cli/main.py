"""The command line: the only place that prints, exits, or sets up logging."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import signal
import sys
from types import FrameType
from typing import Any

import typer

from inferometer import __version__
from inferometer.cli import (
    accuracy,
    bench,
    calibrate,
    choose,
    compare,
    demo,
    doctor,
    engines,
    explain,
    gate,
    inventory,
    meters,
    models,
    published,
    report,
    run,
    slurm,
)
from inferometer.cli.console import Interrupted
from inferometer.errors import ConfigError, InferometerError, StoreError
from inferometer.report.characters import one_line

__all__ = ["app", "main", "run_command"]

INTERRUPTED = 130
_PIPE_CLOSED = 141  # 128 + SIGPIPE, as shells say it

# The class of all usage errors; typer exports only one of its children.
_UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="inferometer",
    help="Measure what an accelerator delivers on ONNX models: images/s, latency, and the price of INT8.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for verb in (demo, run, slurm, bench, calibrate, accuracy, doctor, report, compare, explain, choose, gate):
    app.command(name=verb.NAME)(verb.command)
app.add_typer(models.app, name="models")
app.add_typer(meters.app, name="meters")
for fact in (engines, inventory, published):
    app.command(name=fact.NAME)(fact.command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"inferometer {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Inferometer."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run one command as a process of its own and return its exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without some character is no reason to fail
    command = typer.main.get_command(app)
    try:
        signal.signal(signal.SIGTERM, _as_interrupt)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return _run(command, arguments)
    except KeyboardInterrupt:  # before or after the command's own handling
        return _say("interrupted", INTERRUPTED)


def run_command(arguments: list[str]) -> int:
    """Run one command inside this process and return its exit code; signals are left alone."""
    return _run(typer.main.get_command(app), arguments)


def _run(command: Any, arguments: list[str] | None) -> int:
    """Every foreseen error is one line on standard error and its exit code."""
    try:
        result = command.main(args=arguments, prog_name="inferometer", standalone_mode=False)
        sys.stdout.flush()
    except Interrupted as error:
        return _say(str(error), INTERRUPTED)
    except InferometerError as error:
        return _say(str(error), error.exit_code)
    except _UsageError as error:
        return _say(error.format_message(), ConfigError.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that flushing at exit is silent
        return _PIPE_CLOSED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return _say(f"the output could not be written: {error.strerror}", StoreError.exit_code)
    if result == INTERRUPTED:  # what a KeyboardInterrupt inside a command is turned into
        return _say("interrupted", INTERRUPTED)
    return result if isinstance(result, int) else 0


def _say(text: str, code: int) -> int:
    line = one_line(" ".join(text.split()))
    with contextlib.suppress(OSError):  # standard error may lie on the disk that is full
        sys.stderr.write(f"inferometer: {line}\n")
    return code


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends a study as Ctrl-C does: cleanly, to be resumed.

    The first one does: batch systems send it to the script, which passes it on, and to this process as well.
    """
    signal.signal(signal.SIGTERM, _again)
    raise KeyboardInterrupt


def _again(number: int, frame: FrameType | None) -> None:
    """It is ending already."""
