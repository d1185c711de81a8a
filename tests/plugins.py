"""An engine that goes wrong on demand, installed like any third party's: by its metadata alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

ENGINE = '''
"""A null engine whose batches do what their number says."""

import ctypes
import os
import signal
import time

from inferometer.engines.null import NullEngine, NullSession
from inferometer.errors import OutOfMemory


class FaultyEngine(NullEngine):
    name = "faulty"
    version = "1"

    def load(self, model, device, precision, batch, options):
        return FaultySession(model, batch)


def second():
    """Whether this is rank 1 of several."""
    return "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK"))


class FaultySession(NullSession):
    def __init__(self, model, batch):
        super().__init__(model, batch)
        self.batch = batch

    def submit(self, slot):
        if self.batch == 13:
            ctypes.string_at(0)
        elif self.batch == 14:
            os.abort()
        elif self.batch == 15:
            time.sleep(3600)
        elif self.batch == 16:
            raise OutOfMemory("the pretended device is full")
        elif self.batch == 17:
            raise ValueError("no reason\\nat all")
        elif self.batch == 18:
            os._exit(3)
        elif self.batch > 35:
            raise OutOfMemory("35 fit, and no more")
        elif self.batch == 21 and second():
            raise OutOfMemory("the pretended device is full")
        elif self.batch == 22 and second():
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.001)
'''


def install_faulty_engine(folder: Path) -> Path:
    """Write the engine and its metadata into ``folder``: put that on PYTHONPATH (and sys.path)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faulty_engine.py").write_text(ENGINE)
    info = folder / "faulty_engine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-engine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        textwrap.dedent(
            """
            [inferometer.engines]
            faulty = faulty_engine:FaultyEngine
            absent = engine_of_an_absent_library:Engine
            """
        )
    )
    return folder
