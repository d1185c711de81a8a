"""The calibration table: the ranges found, on which images, of which model. Every engine shares it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from inferometer.errors import CalibrationError
from inferometer.records import Frozen

__all__ = ["TABLE_SCHEMA", "CalibrationTable", "Source", "TensorRange"]

TABLE_SCHEMA = 2
"""Of the file. History: 1, the first; 2, with ``percentile`` and tables from a cache (``images`` is null)."""

_LARGEST = float(np.finfo(np.float32).max)
_ROUNDED = 1e-6  # a threshold may come out of float32 arithmetic

Source = Literal["images", "synthetic", "cache"]


class TensorRange(Frozen):
    """What one tensor took on: its extremes, and the |x| beyond which it saturates.

    ``0 < threshold <= max |x|``; all three are 0 for a tensor that was zero on every image.
    """

    lo: float = Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)
    hi: float = Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)
    threshold: float = Field(ge=0, le=_LARGEST, allow_inf_nan=False)

    @model_validator(mode="after")
    def _ordered(self) -> TensorRange:
        if self.lo > self.hi:
            raise ValueError(f"lo {self.lo:g} is above hi {self.hi:g}")
        largest = max(-self.lo, self.hi)
        if (self.threshold == 0) != (largest == 0) or self.threshold > largest * (1 + _ROUNDED):
            raise ValueError(
                f"threshold {self.threshold:g} does not belong to a tensor of [{self.lo:g}, {self.hi:g}]"
            )
        return self


class CalibrationTable(Frozen):
    """The outcome of one calibration.

    Attributes:
        method: Key of ``METHODS``; of a cache ``tensorrt:`` and the calibrator it names.
        percentile: Per cent of the values that do not saturate; None for the other methods.
        bins: Bins of the histograms; None for a method without.
        tensors: Ranges by tensor name, of the prepared model.
        image_hashes: SHA-256 of each image, sorted; empty for synthetic input and for a cache.
        images: How many images (rows) were seen; None for a cache, which does not say.
        source: ``images``, ``synthetic`` (seeded random input), or ``cache`` (read from TensorRT's form).
        model_sha256: Of the float model's file; for a cache, the one it was read for.
        versions: Of the software, for information.
        seed: Of synthetic input or of the image order; None where there was none.
        warnings: What a user should know of these ranges, one line each.
    """

    schema_version: int = Field(default=TABLE_SCHEMA, alias="schema")
    method: str
    percentile: float | None = Field(default=None, gt=0, le=100)
    bins: int | None
    tensors: dict[str, TensorRange]
    image_hashes: tuple[str, ...]
    images: int | None = Field(ge=1)
    source: Source
    model_sha256: str
    versions: dict[str, str] = Field(default_factory=dict)
    seed: int | None = None
    warnings: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> CalibrationTable:
        if (self.percentile is None) == (self.method == "percentile"):
            raise ValueError("a percentile belongs to the method of that name, and to it alone")
        if (self.images is None) != (self.source == "cache"):
            raise ValueError("the number of images is unknown for a cache, and for it alone")
        return self

    def content_sha256(self) -> str:
        """SHA-256 of the ranges and what they are of: all but seed, versions and warnings, in hexadecimal."""
        content = self._content()
        for name in ("seed", "versions", "warnings"):
            del content[name]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def check_model(self, sha256: str) -> None:
        """Refuse another model.

        Args:
            sha256: Of the float model's file that is to be quantized.

        Raises:
            CalibrationError: The table was made from another file.
        """
        if sha256 != self.model_sha256:
            raise CalibrationError(
                f"the calibration table is of another model (SHA-256 {self.model_sha256[:12]}..., "
                f"this file has {sha256[:12]}...): calibrate this model"
            )

    def to_bytes(self) -> bytes:
        """The table as readable JSON in UTF-8, as `save` writes it."""
        return (json.dumps(self._content(), indent=1) + "\n").encode()

    def _content(self) -> dict[str, Any]:
        """What is written; without an absent percentile, so that older tables stay and hash as they are."""
        content: dict[str, Any] = self.model_dump(mode="json", by_alias=True)
        if self.percentile is None:
            del content["percentile"]
        return content

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as readable JSON; the file is the old or the new one, never a part.

        Raises:
            CalibrationError: The file cannot be written.
        """
        file = Path(path)
        partial = file.with_name(f".{file.name}.{os.getpid()}.part")
        try:
            partial.write_bytes(self.to_bytes())
            partial.replace(file)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CalibrationError(
                f"{file}: the table cannot be written: {reason}; choose another path"
            ) from error
        finally:
            with contextlib.suppress(OSError):  # gone already when all went well
                partial.unlink()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationTable:
        """Read a table.

        Raises:
            CalibrationError: The file is missing, no table, or of a newer version.
        """
        file = Path(path)
        try:
            if file.exists() and not file.is_file():
                raise CalibrationError(f"{file}: is no ordinary file: give a calibration table")
            content = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise CalibrationError(f"{file}: the table cannot be read: {error.strerror or error}") from error
        except (ValueError, RecursionError) as error:
            raise CalibrationError(
                f"{file}: not a calibration table: it is not JSON; calibrate again"
            ) from error
        _check_schema(file, content)
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise CalibrationError(
                f"{file}: not a calibration table: {place}: {first['msg'].lower()}; calibrate again"
            ) from error


def _check_schema(file: Path, content: Any) -> None:
    version = content.get("schema") if isinstance(content, Mapping) else None
    if not isinstance(version, int):
        raise CalibrationError(f"{file}: not a calibration table: no 'schema' in it; calibrate again")
    if version > TABLE_SCHEMA:
        raise CalibrationError(
            f"{file}: a table of schema {version}, this version reads up to {TABLE_SCHEMA}: "
            f"upgrade inferometer"
        )
