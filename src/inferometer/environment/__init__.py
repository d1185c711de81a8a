"""Facts about this machine: what it is, what it allows, how fast and how busy it is now.

One file per source. Every reader takes the root of the file system, so that temporary trees test it. Facts
that cannot be had are ``None`` with a reason. Records get published: no names of hosts or users, no serials.
"""

from inferometer.environment.cgroup import oom_kills, usable_cores
from inferometer.environment.inventory import Inventory, inventory, machine_key
from inferometer.environment.load import CpuClock, ForeignLoad, cpu_clock, foreign_load, load_between
from inferometer.environment.probe import PROBE_VERSION, ProbeReading, machine_probe
from inferometer.environment.state import State, state

__all__ = [
    "PROBE_VERSION",
    "CpuClock",
    "ForeignLoad",
    "Inventory",
    "ProbeReading",
    "State",
    "cpu_clock",
    "foreign_load",
    "inventory",
    "load_between",
    "machine_key",
    "machine_probe",
    "oom_kills",
    "state",
    "usable_cores",
]
