"""TensorRT's calibration cache: scales as text, read into a calibration table and written from one.

The first line is ``TRT-<version>-<calibrator>``; each line behind it is ``<tensor>: <scale>``, where the
scale is an IEEE-754 float32, its bits as a hexadecimal number of eight digits, most significant first. The
threshold is 127 scales. TensorRT deprecated the calibrators in 10.1, in favour of QDQ models.

Source: onnxruntime, ReadDynamicRange in tensorrt_execution_provider_utils.h ("tensor name : scale in 32-bit
single precision IEEE754 format", range = scale * 127); NVIDIA Model Optimizer, import_scales_from_calib_cache
(``struct.unpack("!f", bytes.fromhex(digits))``, used as the scale of QuantizeLinear).
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnx import ModelProto

from inferometer import __version__
from inferometer.errors import CalibrationError
from inferometer.quantize.histogram import VANISHING
from inferometer.quantize.layout import layout_of
from inferometer.quantize.scales import ranges_of_tensors
from inferometer.quantize.signs import non_negative_tensors
from inferometer.quantize.table import CalibrationTable, TensorRange
from inferometer.store import write_atomically

__all__ = ["METHOD_PREFIX", "TENSORRT", "cache_text", "is_cache", "read_cache", "write_cache"]

METHOD_PREFIX = "tensorrt:"
"""Of the method in a table that was read from a cache; the calibrator of the first line follows."""

TENSORRT = "8.6.1"
"""The version in a first line that is written, unless another is asked for: TensorRT skips a cache that it
takes for incompatible (NVIDIA/TensorRT issue 1378). The last of 8.x."""

_STEPS = 127
"""int8 steps from 0 to the threshold. Source: as above, range = scale * 127."""

# Calibrators by method; the others' thresholds are for the one that TensorRT prefers.
_CALIBRATORS = {"minmax": "MinMaxCalibration"}
_PREFERRED = "EntropyCalibration2"

_FIRST_LINE = re.compile(r"TRT-([0-9A-Za-z.]+)-([0-9A-Za-z]+)")
# Hexadecimal numbers are also written without leading zeros.
_LINE = re.compile(r"(.+): ?([0-9A-Fa-f]{1,8})")


@dataclass(frozen=True)
class _Cache:
    """A cache as it stands: TensorRT's version, its calibrator, and the scale of each tensor."""

    version: str
    calibrator: str
    scales: Mapping[str, float]


def is_cache(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a cache does. False for one that cannot be read, and for what is no file."""
    try:
        if not Path(path).is_file():  # a pipe would be waited for
            return False
        with Path(path).open("rb") as file:
            return file.read(4) == b"TRT-"
    except OSError:
        return False


def read_cache(path: str | os.PathLike[str], model: ModelProto, model_sha256: str) -> CalibrationTable:
    """Read a cache as the calibration table of a model.

    A cache holds thresholds alone. So hi is T, and lo is 0 where the graph proves that the tensor is never
    negative, else -T. A scale of 0 stands for a tensor that was zero on every image. Which images chose the
    ranges is unknown, and the table's warnings say so.

    Args:
        path: The cache.
        model: The float model, prepared. A cache does not say which model it is of: the tensors' names must
            fit. What it holds beyond the tensors that need a range is left out, and counted in a warning.
        model_sha256: Of the float model's file.

    Raises:
        CalibrationError: The file cannot be read or is no cache (the message names the line), it has no
            tensor of the model, or lacks some.
    """
    file = Path(path)
    cache = _parsed(file)
    needed = layout_of(model).observed
    _check_names(file, cache.scales, needed)
    positive = non_negative_tensors(model)
    return CalibrationTable(
        method=f"{METHOD_PREFIX}{cache.calibrator}",
        bins=None,
        tensors={name: _range(cache.scales[name] * _STEPS, name in positive) for name in needed},
        image_hashes=(),
        images=None,
        source="cache",
        model_sha256=model_sha256,
        versions={"inferometer": __version__, "tensorrt": cache.version},
        warnings=_warnings(file, cache.scales, needed),
    )


def cache_text(table: CalibrationTable, model: ModelProto | None = None, *, tensorrt: str = TENSORRT) -> str:
    """A table in the form of a cache.

    The first line names the calibrator class that TensorRT must be given to accept the file: the one of a
    table that was read from a cache, ``MinMaxCalibration`` for the method ``minmax``, else
    ``EntropyCalibration2``. A tensor that was zero on every image has the scale 1, as in a quantized model:
    TensorRT stops at a scale of 0 (NVIDIA/TensorRT issue 4446). Read back, its threshold is 127, which
    represents 0 as well.

    Args:
        table: The table. Its lo, hi, images and hashes are not kept.
        model: The prepared model, so that tensors which pass a scale through (behind pooling, Concat and
            reshapes) are written too: TensorRT leaves a layer in float when a tensor of it has no scale
            (its warning in NVIDIA/TensorRT issue 2462). None for the table's own tensors alone.
        tensorrt: Version of the TensorRT that is to read the file, such as ``8.6.1``.

    Raises:
        CalibrationError: The version is not three numbers, a scale does not fit a float32, a name holds a
            line break, or the table lacks a tensor of ``model``.
    """
    ranges: Mapping[str, TensorRange] = table.tensors
    if model is not None:
        ranges = ranges_of_tensors(layout_of(model), table.tensors, mixed_signs=True)
    if table.method.startswith(METHOD_PREFIX):
        calibrator = table.method.removeprefix(METHOD_PREFIX)
    else:
        calibrator = _CALIBRATORS.get(table.method, _PREFERRED)
    lines = [f"TRT-{_version_number(tensorrt)}-{calibrator}"]
    lines += [f"{_checked(name)}: {_digits(name, found.threshold)}" for name, found in ranges.items()]
    return "\n".join(lines) + "\n"


def write_cache(
    table: CalibrationTable,
    path: str | os.PathLike[str],
    model: ModelProto | None = None,
    *,
    tensorrt: str = TENSORRT,
) -> None:
    """Write what `cache_text` gives; the file is the old or the new one, never a part.

    Raises:
        CalibrationError: As `cache_text`.
        StoreError: The file cannot be written.
    """
    write_atomically(Path(path), cache_text(table, model, tensorrt=tensorrt).encode())


def _parsed(file: Path) -> _Cache:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise CalibrationError(f"{file}: the cache cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CalibrationError(f"{file}: not a calibration cache: it is not text") from error
    first = _FIRST_LINE.fullmatch(lines[0].strip()) if lines else None
    if first is None:
        raise CalibrationError(
            f"{file}: not a calibration cache of TensorRT: line 1 is not like 'TRT-8601-EntropyCalibration2'"
        )
    scales: dict[str, float] = {}
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            name, scale = _entry(file, number, line.rstrip())
            if scales.setdefault(name, scale) != scale:
                raise CalibrationError(f"{file}: line {number}: tensor {name!r} has another scale above")
    return _Cache(first[1], first[2], scales)


def _entry(file: Path, number: int, line: str) -> tuple[str, float]:
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise CalibrationError(
            f"{file}: line {number} is not '<tensor>: <scale in hexadecimal>': make the cache again"
        )
    scale = float(struct.unpack("!f", bytes.fromhex(parts[2].zfill(8)))[0])
    if not 0 <= scale < float("inf"):
        raise CalibrationError(
            f"{file}: line {number}: the scale of tensor {parts[1]!r} is {scale:g}, not a finite number from "
            f"0 up: make the cache again"
        )
    return parts[1], scale + 0.0  # -0.0 is 0


def _check_names(file: Path, scales: Mapping[str, float], needed: Sequence[str]) -> None:
    missing = [name for name in needed if name not in scales]
    if len(missing) == len(needed):
        raise CalibrationError(
            f"{file}: the cache has no tensor of this model ({needed[0]!r} for one): it is another model's"
        )
    if missing:
        raise CalibrationError(
            f"{file}: the cache has no scale for {len(missing)} of the {len(needed)} tensors that need one: "
            f"{_named(missing)}; make the cache from this very model, or calibrate it"
        )


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def _warnings(file: Path, scales: Mapping[str, float], needed: Sequence[str]) -> tuple[str, ...]:
    lines = [
        f"the ranges come from the cache {file.name}: which images chose them is unknown, so accuracy may be "
        f"scored on some of those"
    ]
    surplus = len(scales) - len(needed)
    if surplus:
        lines.append(f"{surplus} of the cache's {len(scales)} tensors need no range here and were left out")
    dead = [name for name in needed if scales[name] * _STEPS < VANISHING]
    if dead:
        lines.append(f"{len(dead)} tensors have a scale of 0, {dead[0]!r} for one: taken as always zero")
    return tuple(lines)


def _range(threshold: float, positive: bool) -> TensorRange:
    if threshold < VANISHING:
        return TensorRange(lo=0.0, hi=0.0, threshold=0.0)
    return TensorRange(lo=0.0 if positive else -threshold, hi=threshold, threshold=threshold)


def _version_number(version: str) -> int:
    """As in TensorRT's header NvInferVersion.h: 8.6.1 is 8601; from 10 on 10.3.0 is 100300."""
    parts = version.split(".")
    if len(parts) != 3 or not all(part.isdecimal() for part in parts):
        raise CalibrationError(f"the TensorRT version {version!r} is not three numbers such as {TENSORRT}")
    major, minor, patch = map(int, parts)
    return major * (10_000 if major >= 10 else 1000) + minor * 100 + patch


def _checked(name: str) -> str:
    if len(name.splitlines()) != 1:
        raise CalibrationError(f"tensor {name!r}: its name cannot stand in a cache, which has one a line")
    return name


def _digits(name: str, threshold: float) -> str:
    scale = threshold / _STEPS if threshold >= VANISHING else 1.0
    try:
        return struct.pack("!f", scale).hex()
    except OverflowError as error:
        raise CalibrationError(f"tensor {name!r}: its threshold {threshold:g} is no float32") from error
