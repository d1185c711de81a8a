"""Ctrl-C or SIGTERM at any moment: one line, exit code 130, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

WRAPPED = """
import sys
import inferometer.__main__ as entry
import inferometer.cli.main as command_line

def turned_into_something_else():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        raise TypeError("a library's own words") from error

command_line.main = turned_into_something_else
entry.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.2, 0.4, 0.6])
def test_while_it_starts(after_s: float, number: signal.Signals) -> None:
    started = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from inferometer.__main__ import main; print('up', flush=True); main()",
            "inventory",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "up\n"
    time.sleep(after_s)
    started.send_signal(number)
    _, said = started.communicate(timeout=30)
    assert "Traceback" not in said
    if started.returncode != 0:  # it was faster than the signal
        assert (started.returncode, said) == (130, "inferometer: interrupted\n")


def test_an_interrupt_that_a_library_turned_into_an_error_is_still_one() -> None:
    done = subprocess.run([sys.executable, "-c", WRAPPED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "inferometer: interrupted\n")
