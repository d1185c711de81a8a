"""All facts about this machine that go into every record.

Privacy: records get published, so nothing here holds a host name, a user name, an address, a serial number or
a machine UUID. GPU UUIDs are kept: they tell whether two stores come from the same machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from inferometer.environment.cgroup import CgroupFacts, cgroup_facts, usable_cores
from inferometer.environment.cpu import CpuFacts, cpu_facts
from inferometer.environment.dmi import ServerFacts, server_facts
from inferometer.environment.facts import ROOT, Account, under
from inferometer.environment.libraries import library_versions
from inferometer.environment.memory import MemoryFacts, memory_facts
from inferometer.environment.nvml import GpuFacts, gpu_facts
from inferometer.environment.system import SystemFacts, system_facts

__all__ = ["Inventory", "inventory", "machine_key"]


class Inventory(Account):
    """This machine, as far as it tells.

    Attributes:
        machine_key: Stable hash of CPU model, board and GPU UUIDs (`machine_key`).
        cpu: The processor.
        memory: Main memory.
        cgroup: Limits of the control group.
        usable_cores: Threads that can run at once, quota and affinity honoured.
        server: The server model.
        system: Operating system, kernel, Python, virtualisation.
        libraries: Version by distribution name.
        gpus: GPUs, empty without NVML.
        missing: Dotted field name to the reason why it is ``None`` (or, for ``gpus``, empty).
    """

    machine_key: str
    cpu: CpuFacts
    memory: MemoryFacts
    cgroup: CgroupFacts
    usable_cores: int
    server: ServerFacts
    system: SystemFacts
    libraries: dict[str, str | None]
    gpus: tuple[GpuFacts, ...]

    def _absent(self) -> set[str]:
        return super()._absent() | (set() if self.gpus else {"gpus"})


def inventory(root: Path = ROOT) -> Inventory:
    """Take the inventory.

    Args:
        root: The file system that holds proc/, sys/, etc/ and run/. Libraries, GPUs, affinity, C library and
            architecture are the running process's own.

    Returns:
        The facts, each absent one with its reason.
    """
    cpu, cpu_missing = cpu_facts(root)
    memory, memory_missing = memory_facts(root)
    cgroup, cgroup_missing = cgroup_facts(root)
    server, server_missing = server_facts(root)
    system, system_missing = system_facts(root)
    libraries, libraries_missing = library_versions()
    gpus, gpus_missing = gpu_facts()
    return Inventory(
        machine_key=machine_key(cpu.model, server.board_name, (gpu.uuid for gpu in gpus)),
        cpu=cpu,
        memory=memory,
        cgroup=cgroup,
        usable_cores=usable_cores(root),
        server=server,
        system=system,
        libraries=libraries,
        gpus=gpus,
        missing={
            **under("cpu", cpu_missing),
            **under("memory", memory_missing),
            **under("cgroup", cgroup_missing),
            **under("server", server_missing),
            **under("system", system_missing),
            **under("libraries", libraries_missing),
            **({"gpus": gpus_missing[""]} if "" in gpus_missing else under("gpus", gpus_missing)),
        },
    )


def machine_key(cpu_model: str | None, board: str | None, gpu_uuids: Iterable[str | None]) -> str:
    """A name for this machine: two stores with the same key are taken to come from the same machine.

    Machines of one kind that show neither a board nor GPUs (small virtual machines) share a key.

    Args:
        cpu_model: CPU model.
        board: Board name.
        gpu_uuids: UUIDs of the GPUs, in any order.

    Returns:
        16 hexadecimal digits of the SHA-256 of the three as JSON.
    """
    identity = json.dumps([cpu_model, board, sorted(uuid for uuid in gpu_uuids if uuid)])
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
