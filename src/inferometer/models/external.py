"""Weights in a file beside the model: for models that one protobuf message, of 2 GiB at most, cannot hold.

The data file's name ends in the hash of its content (``net.onnx.0123456789ab.data``), so that it never takes
the place of another model's data. It is whole on the disk before the model that names it, and the data files
of the model that was there before go last: whenever a crash comes, the model at the path can be read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, numpy_helper

from inferometer.errors import ModelError, StoreError
from inferometer.models.graph import all_tensors
from inferometer.store import write_atomically

__all__ = ["LARGEST_MESSAGE", "bytes_inside", "locations", "save_with_data"]

LARGEST_MESSAGE = 2**31 - 2**20
"""Bytes of tensors up to which a model is one file; protobuf holds 2 GiB, and the graph needs room too."""

_ALIGNED = 4096  # Source: ONNX's ExternalData.md: offsets of whole pages, so that the data can be mapped.
_LARGE = 1024  # smaller tensors stay in the model: they may be shapes
_CHUNK = 1 << 24


def bytes_inside(model: ModelProto) -> int:
    """Bytes of the stored tensors that are in memory as raw data."""
    return sum(len(tensor.raw_data) for tensor in all_tensors(model))


def locations(model: ModelProto) -> set[str]:
    """Names of the files with a model's external data, relative to the model's folder."""
    return {
        item.value for tensor in all_tensors(model) for item in tensor.external_data if item.key == "location"
    }


def save_with_data(model: ModelProto, path: Path, source: Path | None) -> None:
    """Write a model, and its larger initializers into a data file beside it.

    Args:
        model: The model; left as it is.
        path: Of the model.
        source: The file whose folder has the external data that the model still refers to.

    Raises:
        ModelError: A tensor is in another file and ``source`` is not given, or cannot be read.
        StoreError: A file cannot be written; no part of it is left behind.
    """
    place = path.resolve()  # a link stays a link
    before = _data_files(place)
    light, large = _parted(model)
    draft = place.with_name(f".{place.name}.data.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as stream:
            digest, offsets = _write(large, stream, source)
            stream.flush()
            os.fsync(stream.fileno())
        data = place.with_name(f"{place.name}.{digest[:12]}.data")
        draft.replace(data)
    except OSError as error:
        raise StoreError(f"{path}: could not write its data: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # gone already when all went well
            draft.unlink()
    for tensor, (offset, length) in zip(large, offsets, strict=True):
        entry = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        entry.data_location = TensorProto.EXTERNAL
        for key, value in (("location", data.name), ("offset", offset), ("length", length)):
            entry.external_data.add(key=key, value=str(value))
    try:
        write_atomically(place, light.SerializeToString())
    except StoreError:
        if data not in before:
            data.unlink()
        raise
    for old in before - {data}:
        with contextlib.suppress(OSError):  # what is left is only in the way
            old.unlink()


def _data_files(place: Path) -> set[Path]:
    """The data files, named by `save_with_data`, of the model that is at the path now."""
    try:
        model = ModelProto.FromString(place.read_bytes())
    except (OSError, DecodeError):
        return set()
    ours = re.compile(re.escape(place.name) + r"\.[0-9a-f]{12}\.data")
    return {place.with_name(name) for name in locations(model) if ours.fullmatch(name)}


def _parted(model: ModelProto) -> tuple[ModelProto, list[TensorProto]]:
    """The model without its larger initializers, and those, uncopied."""
    light = ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _set(light, field, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _set(light.graph, field, value)
    large = []
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL or len(tensor.raw_data) >= _LARGE:
            large.append(tensor)
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    return light, large


def _set(target: object, field: object, value: object) -> None:
    name = field.name  # type: ignore[attr-defined]
    if isinstance(value, str | int | float | bytes):
        setattr(target, name, value)
    else:
        getattr(target, name).MergeFrom(value)


def _write(
    tensors: list[TensorProto], stream: IO[bytes], source: Path | None
) -> tuple[str, list[tuple[int, int]]]:
    """Write tensors one after another; return the content's SHA-256 and each one's offset and length."""
    digest, places, at = hashlib.sha256(), [], 0
    for tensor in tensors:
        start = at + -at % _ALIGNED
        for piece in chain((bytes(start - at),), _pieces(tensor, source)):
            stream.write(piece)
            digest.update(piece)
            at += len(piece)
        places.append((start, at - start))
    return digest.hexdigest(), places


def _pieces(tensor: TensorProto, source: Path | None) -> Iterator[bytes]:
    if tensor.data_location != TensorProto.EXTERNAL:
        yield tensor.raw_data or numpy_helper.to_array(tensor).tobytes()
        return
    if source is None:
        raise ModelError(f"tensor {tensor.name!r} is in another file: read the model with its weights")
    entries = {item.key: item.value for item in tensor.external_data}
    file = source.parent / entries["location"]
    try:
        with file.open("rb") as stream:
            stream.seek(int(entries.get("offset", 0)))
            left = int(entries.get("length", file.stat().st_size - stream.tell()))
            while left and (piece := stream.read(min(left, _CHUNK))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror}") from error
