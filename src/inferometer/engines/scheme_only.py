"""An engine whose INT8 files are written here, and which this version cannot run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from inferometer.contracts import Device, QdqScheme, Variant
from inferometer.errors import Unsupported
from inferometer.records import Precision

__all__ = ["SchemeOnlyEngine"]


class SchemeOnlyEngine(ABC):
    """Knows the form of QDQ that a vendor's runtime wants, and nothing of the runtime itself.

    No device is found and no precision supported, so that a study refuses it before any trial.
    """

    name: str
    title: str
    version = "none"
    computes = True

    @property
    def reason(self) -> str:
        """Why nothing runs, and what does work."""
        return (
            f"this version writes INT8 files for {self.title} (inferometer calibrate --engine {self.name}) "
            f"and cannot run it yet"
        )

    def devices(self) -> list[Device]:
        """None."""
        return []

    def variants(self) -> list[Variant]:
        """One, with the reason why nothing runs."""
        return [Variant({}, self.reason)]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """Each with the reason why it does not run."""
        return dict.fromkeys(get_args(Precision), self.reason)

    @abstractmethod
    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """The form of its INT8 files."""

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> NoReturn:
        """Refuse.

        Raises:
            Unsupported: Always, with the reason.
        """
        raise Unsupported(f"{self.name}: {self.reason}")
