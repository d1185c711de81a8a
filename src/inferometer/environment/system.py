"""Operating system, kernel, C library, Python, and whether this is a virtual machine or a container.

Host and user names are never read: records get published.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from inferometer.environment.cpu import cpu_entries
from inferometer.environment.facts import ROOT, Absent, Facts, Reasons, gather, read_text

__all__ = ["SystemFacts", "system_facts"]


class SystemFacts(Facts):
    """The software below Inferometer; a field is ``None`` where it is not known.

    Attributes:
        os_name: Distribution, such as ``Debian GNU/Linux``.
        os_version: Its version, such as ``12``.
        kernel: Kernel release.
        libc: C library and version, such as ``glibc 2.36``.
        python: Python version.
        python_implementation: ``CPython``, ...
        virtual_machine: Whether a hypervisor shows itself to this kernel.
        container: Kind of container around this process, when there is a sign of one.
    """

    os_name: str | None
    os_version: str | None
    kernel: str | None
    libc: str | None
    python: str
    python_implementation: str
    virtual_machine: bool | None
    container: str | None


def system_facts(root: Path = ROOT, environ: Mapping[str, str] | None = None) -> tuple[SystemFacts, Reasons]:
    """Read the system's facts.

    Args:
        root: The file system that holds proc/, sys/, etc/ and run/.
        environ: Environment variables; by default this process's.

    Returns:
        The facts, and the reason for each that is ``None``.
    """
    release = _os_release(root)
    return gather(
        SystemFacts,
        {
            "os_name": _of(release, "NAME"),
            "os_version": _of(release, "VERSION_ID"),
            "kernel": read_text(root, "proc/sys/kernel/osrelease"),
            "libc": _libc(),
            "python": platform.python_version(),
            "python_implementation": platform.python_implementation(),
            "virtual_machine": _virtual_machine(root),
            "container": _container(root, os.environ if environ is None else environ),
        },
    )


def _os_release(root: Path) -> dict[str, str] | Absent:
    """Source: os-release(5), which names both places in this order."""
    text = read_text(root, "etc/os-release")
    if isinstance(text, Absent):
        text = read_text(root, "usr/lib/os-release")
    if isinstance(text, Absent):
        return Absent("neither /etc/os-release nor /usr/lib/os-release can be read")
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, sign, value = line.partition("=")
        if sign and re.fullmatch(r"[A-Z0-9_]+", key):
            try:
                found[key] = "".join(shlex.split(value))
            except ValueError:  # an unbalanced quote: keep what is written
                found[key] = value
    return found


def _of(release: dict[str, str] | Absent, key: str) -> str | Absent:
    if isinstance(release, Absent):
        return release
    return release.get(key) or Absent(f"/etc/os-release gives no {key}")


def _libc() -> str | Absent:
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        name = None
    if name:
        return name
    # Other libraries (musl) have no such name; the interpreter's own binary tells some of them.
    library, version = platform.libc_ver()
    return f"{library} {version}".strip() or Absent("the C library does not tell its name")


def _virtual_machine(root: Path) -> bool | Absent:
    if (root / "sys/hypervisor/type").is_file():
        return True
    entries = cpu_entries(root)
    if isinstance(entries, Absent):
        return entries
    flags = [entry["flags"].split() for entry in entries if "flags" in entry]
    if not flags:
        return Absent("only x86 processors show a hypervisor among their flags")
    return any("hypervisor" in names for names in flags)


def _container(root: Path, environ: Mapping[str, str]) -> str | Absent:
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    told = read_text(root, "run/systemd/container")
    if isinstance(told, str):
        return told
    groups = read_text(root, "proc/self/cgroup")
    sign = re.search(r"kubepods|docker|libpod|containerd|lxc", groups) if isinstance(groups, str) else None
    return sign[0] if sign else Absent("no sign of a container")
