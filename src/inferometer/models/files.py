"""Reading and writing ONNX files: every way in which a file can be unusable is one clear `ModelError`."""

from __future__ import annotations

import hashlib
import math
import os
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import ModelProto, TensorProto, ValueInfoProto, external_data_helper

from inferometer.errors import ModelError
from inferometer.models.external import LARGEST_MESSAGE, bytes_inside, locations, save_with_data
from inferometer.models.graph import SMALL, all_tensors, element_bits, is_standard
from inferometer.store import write_atomically

__all__ = ["file_sha256", "load", "one_line", "save"]

_CHUNK = 1 << 20

# First bytes of what is given for an ONNX file by mistake.
_SIGNATURES = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PK\x03\x04": "a ZIP archive or a PyTorch checkpoint",
    b"\x1f\x8b": "a gzip archive",
    b"\x89HDF": "an HDF5 file",
    b"version https://git-lfs": "a Git LFS pointer: run `git lfs pull`",
    b"<": "an HTML or XML page",
}


def load(path: str | os.PathLike[str], *, weights: bool = True) -> ModelProto:
    """Read and check an ONNX file.

    Args:
        path: The file.
        weights: Whether to read all external data as well, if the file has any. Without, larger tensors
            still refer to it (see `save`); the check that it exists is made either way, and small tensors,
            which may be shapes, are read.

    Raises:
        ModelError: The file is missing, a directory, empty, truncated, not ONNX, without a graph, invalid,
            or of an IR version or operator set newer than the installed onnx package knows.
    """
    file = Path(path)
    model = _parse(file)
    if not model.HasField("graph") or not model.graph.node:
        raise ModelError(f"{file}: holds no graph: it is truncated or not an ONNX model; export it again")
    _check_versions(file, model)
    try:
        _check(file, model)
        for tensor in all_tensors(model):
            _check_size(file, tensor)
            if tensor.data_location == TensorProto.EXTERNAL and (weights or math.prod(tensor.dims) <= SMALL):
                external_data_helper.load_external_data_for_tensor(tensor, str(file.parent))
                tensor.data_location = TensorProto.DEFAULT
                del tensor.external_data[:]
    except onnx.checker.ValidationError as error:
        mend = "; name the model where it really lies, or copy it" if "symbolic link" in str(error) else ""
        raise ModelError(f"{file}: not a valid ONNX model: {one_line(error)}{mend}") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: its external data cannot be read: {one_line(error)}") from error
    return model


def save(model: ModelProto, path: str | os.PathLike[str], source: Path | None = None) -> None:
    """Write a model, atomically: the path holds the old file or the whole new one, never a part.

    A model over protobuf's 2 GiB, or one whose weights were not read, gets a data file beside it (see
    `external`).

    Args:
        model: The model.
        path: Where to.
        source: The file that the model was read from without its weights; None when all are in memory.

    Raises:
        ModelError: The model refers to data in another file that is not at hand.
        StoreError: A file cannot be written.
    """
    file = Path(path)
    if bytes_inside(model) > LARGEST_MESSAGE or locations(model):
        save_with_data(model, file, source)
    else:
        write_atomically(file, serialized(model, file))


def serialized(model: ModelProto, path: Path) -> bytes:
    """The content of the one file that ``path`` is to be.

    Raises:
        ModelError: The model is over protobuf's 2 GiB.
    """
    try:
        content: bytes = model.SerializeToString()
    except (EncodeError, ValueError) as error:
        raise ModelError(
            f"{path}: cannot be written as one ONNX file, which holds 2 GiB at most: {one_line(error)}"
        ) from error
    return content


def file_sha256(path: str | os.PathLike[str], model: ModelProto | None = None) -> str:
    """SHA-256 of a model file, read in pieces, as 64 hexadecimal digits.

    With external data the digest covers the file and then each external file, in the order of their names.

    Args:
        path: The ONNX file.
        model: The same file parsed without its external data, when at hand.

    Raises:
        ModelError: A file is missing or cannot be read.
    """
    file = Path(path)
    parsed = _parse(file) if model is None else model
    digest = hashlib.sha256()
    for part in [file, *(file.parent / name for name in sorted(locations(parsed)))]:
        try:
            with part.open("rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
        except OSError as error:
            raise ModelError(f"{part}: cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def one_line(error: Exception) -> str:
    """The message of a foreign exception on one line, without the context that onnx appends."""
    text = str(error).split("==> Context:")[0]
    return " ".join(text.split()).rstrip(".") or type(error).__name__


def _parse(file: Path) -> ModelProto:
    if file.is_dir():
        raise ModelError(f"{file}: a folder, not an ONNX file; name the .onnx file inside it")
    if file.exists() and not file.is_file():
        raise ModelError(f"{file}: no ordinary file, so no ONNX file")
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise ModelError(f"{file}: no such file; check the path, or see `inferometer models list`") from error
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror}") from error
    if not content:
        raise ModelError(f"{file}: empty (0 bytes); export or download it again")
    try:
        model: ModelProto = ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError(f"{file}: {_what_is_wrong(content)}") from error
    return model


def _what_is_wrong(content: bytes) -> str:
    for start, kind in _SIGNATURES.items():
        if content.startswith(start):
            return f"not an ONNX file but {kind}"
    # The first field of every ONNX file is ir_version: tag 0x08 and a small number.
    if content[0] == 0x08 and len(content) > 1 and content[1] <= 0x7F:
        return f"truncated or damaged after {len(content)} bytes; export or download it again"
    return "not an ONNX file (not a protobuf message); give a file written by an ONNX exporter"


def _check(file: Path, model: ModelProto) -> None:
    """onnx's own check of the file.

    Inputs and outputs without a shape, of unknown rank, fail it, although runtimes take them: with one filled
    in, the rest is checked.
    """
    try:
        # By path: the check then covers external data, and models over protobuf's 2 GiB.
        onnx.checker.check_model(str(file))
    except onnx.checker.ValidationError as error:
        infos = [info for info in (*model.graph.input, *model.graph.output) if _rankless(info)]
        if "'shape'" not in str(error) or not infos or locations(model):
            raise
        ranked = ModelProto()
        ranked.CopyFrom(model)
        for info in (*ranked.graph.input, *ranked.graph.output):
            if _rankless(info):
                info.type.tensor_type.shape.SetInParent()
        onnx.checker.check_model(ranked)


def _rankless(info: ValueInfoProto) -> bool:
    return info.type.HasField("tensor_type") and not info.type.tensor_type.HasField("shape")


def _check_versions(file: Path, model: ModelProto) -> None:
    how = f"upgrade onnx (here {onnx.__version__}) or export for an older version"
    if model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"{file}: unsupported IR version {model.ir_version}, at most {onnx.IR_VERSION} is known; {how}"
        )
    known = onnx.defs.onnx_opset_version()
    for item in model.opset_import:
        if is_standard(item.domain) and item.version > known:
            raise ModelError(f"{file}: unsupported opset {item.version}, at most {known} is known; {how}")


def _check_size(file: Path, tensor: TensorProto) -> None:
    """A tensor must have as many bytes as its shape and type ask for (older checkers do not look)."""
    bits = element_bits(tensor.data_type)
    if bits is None:
        return
    wanted = (math.prod(tensor.dims) * bits + 7) // 8
    if tensor.data_location == TensorProto.EXTERNAL:
        entries = {item.key: item.value for item in tensor.external_data}
        size = (file.parent / entries["location"]).stat().st_size - int(entries.get("offset", 0))
        found = min(size, int(entries.get("length", size)))
    elif tensor.HasField("raw_data"):
        found = len(tensor.raw_data)
    else:
        return  # in a typed field, which the checker counts
    if found < wanted:
        raise ModelError(f"{file}: truncated: tensor {tensor.name!r} has {found} of its {wanted} bytes")
