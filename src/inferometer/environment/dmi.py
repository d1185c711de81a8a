"""The server model. Source: /sys/class/dmi/id (SMBIOS types 1 and 2), or the device tree on Arm boards.

Serial numbers, asset tags and UUIDs lie in the same folder and are never read: records get published.
"""

from __future__ import annotations

from pathlib import Path

from inferometer.environment.facts import ROOT, Absent, Facts, Reasons, gather, read_text

__all__ = ["ServerFacts", "server_facts"]

# What boards carry when their maker filled nothing in.
_PLACEHOLDERS = frozenset(
    {
        "to be filled by o.e.m.",
        "default string",
        "system manufacturer",
        "system product name",
        "not specified",
        "not applicable",
        "n/a",
        "none",
        "unknown",
        "o.e.m.",
    }
)


class ServerFacts(Facts):
    """The server model; a field is ``None`` where the firmware does not say.

    Attributes:
        sys_vendor: Maker of the system, such as ``Dell Inc.``.
        product_name: Model, such as ``PowerEdge R740``.
        board_name: Main board.
    """

    sys_vendor: str | None
    product_name: str | None
    board_name: str | None


def server_facts(root: Path = ROOT) -> tuple[ServerFacts, Reasons]:
    """Read the server's model below ``root``; the reasons tell why a fact is ``None``."""
    product = _field(root, "product_name")
    if isinstance(product, Absent):
        tree = read_text(root, "proc/device-tree/model")
        product = product if isinstance(tree, Absent) else tree
    return gather(
        ServerFacts,
        {
            "sys_vendor": _field(root, "sys_vendor"),
            "product_name": product,
            "board_name": _field(root, "board_name"),
        },
    )


def _field(root: Path, name: str) -> str | Absent:
    if not (root / "sys/class/dmi/id").is_dir():
        return Absent("/sys/class/dmi/id is not there (usual in small virtual machines and on Arm boards)")
    text = read_text(root, f"sys/class/dmi/id/{name}")
    if isinstance(text, str) and text.lower() in _PLACEHOLDERS:
        return Absent(f"the firmware holds only a placeholder ({text!r})")
    return text
