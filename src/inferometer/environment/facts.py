"""How a fact about this machine is read, and what stands for one that is not there.

A reader returns the value or `Absent` with the reason; `gather` turns a set of them into a frozen model whose
absent fields are ``None`` and a mapping of field to reason. No default ever stands for something unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = [
    "ROOT",
    "Absent",
    "Account",
    "Facts",
    "Reasons",
    "gather",
    "read_int",
    "read_text",
    "split",
    "under",
]

ROOT = Path("/")
"""The file system that holds proc/, sys/ and etc/; tests give a temporary tree."""

Reasons = dict[str, str]
"""Field name (dotted when nested) to the reason why it is ``None``."""


@dataclass(frozen=True, slots=True)
class Absent:
    """A fact that cannot be had here.

    Attributes:
        reason: Why, in words that may be published.
    """

    reason: str


class Facts(BaseModel):
    """Base of the frozen, JSON-serialisable groups of facts."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Account(Facts):
    """Facts with the reason for each absent one; one without the other is refused.

    Attributes:
        missing: Dotted field name (list items by position) to the reason why it is ``None``.
    """

    missing: Reasons

    @model_validator(mode="after")
    def _every_absence_has_its_reason(self) -> Self:
        differing = self._absent() ^ set(self.missing)
        if differing:
            raise ValueError(f"fields and 'missing' disagree on {', '.join(sorted(differing))}")
        return self

    def _absent(self) -> set[str]:
        return _absent_fields(self.model_dump(exclude={"missing"}))


_F = TypeVar("_F", bound=Facts)


def split(facts: Mapping[str, object]) -> tuple[dict[str, object], Reasons]:
    """Part facts into values (``None`` for `Absent` ones) and the reasons for the absent ones."""
    reasons = {name: fact.reason for name, fact in facts.items() if isinstance(fact, Absent)}
    return {name: None if name in reasons else fact for name, fact in facts.items()}, reasons


def gather(kind: type[_F], facts: Mapping[str, object]) -> tuple[_F, Reasons]:
    """Build one group of facts.

    Args:
        kind: The model to build.
        facts: Field name to value, or to `Absent`.

    Returns:
        The model, with ``None`` for absent facts, and the reason for each of these.
    """
    values, reasons = split(facts)
    return kind.model_validate(values), reasons


def under(section: str, reasons: Mapping[str, str]) -> Reasons:
    """The same reasons with their fields named from one level higher: ``section.field``."""
    return {f"{section}.{name}": reason for name, reason in reasons.items()}


def _absent_fields(values: Mapping[str, object]) -> set[str]:
    found: set[str] = set()
    for name, value in values.items():
        if value is None:
            found.add(name)
        elif isinstance(value, Mapping):
            found |= {f"{name}.{inner}" for inner in _absent_fields(value)}
        elif isinstance(value, (list, tuple)):
            items = {str(place): item for place, item in enumerate(value)}
            found |= {f"{name}.{inner}" for inner in _absent_fields(items)}
    return found


def read_text(root: Path, path: str) -> str | Absent:
    """Read one small kernel or system file.

    Args:
        root: The file system's root.
        path: The file's path below it, without a leading slash.

    Returns:
        The text without surrounding white space and NUL characters, or why there is none.
    """
    try:
        # Device-tree strings end in NUL; a stray byte must not lose the whole file.
        text = (root / path).read_text(encoding="utf-8", errors="replace").strip(" \t\r\n\0")
    except (FileNotFoundError, NotADirectoryError):
        return Absent(f"/{path} is not there")
    except PermissionError:
        return Absent(f"/{path} is not readable by this user")
    except OSError as error:
        return Absent(f"/{path} cannot be read: {error.strerror}")
    return text if text else Absent(f"/{path} is empty")


def read_int(root: Path, path: str, scale: int = 1) -> int | Absent:
    """Read a file that holds one whole number, times ``scale`` (the step from the kernel's unit to ours)."""
    text = read_text(root, path)
    if isinstance(text, Absent):
        return text
    try:
        return int(text) * scale
    except ValueError:
        return Absent(f"/{path} holds {text[:40]!r}, not a whole number")
