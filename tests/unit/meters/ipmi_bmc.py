"""A small BMC on 127.0.0.1 that answers Get Power Reading: ``python ipmi_bmc.py MODE USER PASSWORD``.

Prints its UDP port once it listens, and serves until it is ended. Modes: ``ok`` (215 W), ``deactivated``
(0 W, not measuring), ``none`` (65535 W), ``unsupported`` (completion code c1), ``privilege`` (d4), ``hang``
(logs in, but never answers this command).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from typing import Any

from pyghmi.ipmi.bmc import Bmc

ACTIVE = 0x40


def answer(current_w: int, state: int = ACTIVE) -> bytes:
    """What a BMC says after the completion code, with statistics over one second."""
    return struct.pack("<B4H2IB", 0xDC, current_w, 2, 468, 184, 1_714_914_404, 1000, state)


class PowerBmc(Bmc):
    """A BMC with DCMI power readings and nothing else."""

    def __init__(self, mode: str, user: str, password: str) -> None:
        super().__init__({user: password}, port=0, address="127.0.0.1")
        # Sessions are found by this number.
        self.port = self.serversocket.getsockname()[1]
        self.mode = mode

    def handle_raw_request(self, request: Mapping[str, Any], session: Any) -> None:
        is_reading = (request["netfn"], request["command"]) == (0x2C, 0x02)
        if not is_reading or bytes(request["data"]) != b"\xdc\x01\x00\x00" or self.mode == "unsupported":
            session.send_ipmi_response(code=0xC1)
        elif self.mode == "privilege":
            session.send_ipmi_response(code=0xD4)
        elif self.mode != "hang":
            readings = {"ok": answer(215), "deactivated": answer(0, 0), "none": answer(65535)}
            session.send_ipmi_response(data=list(readings[self.mode]))


if __name__ == "__main__":
    bmc = PowerBmc(*sys.argv[1:])
    print(bmc.port, flush=True)
    bmc.listen(1)
