"""Reading files of trained weights: what is in them first, the values tensor by tensor.

=========================  ===================================================================
``.safetensors``           read lazily from the mapped file (extra ``weights``)
``.pth``, ``.pt``, ...     PyTorch's checkpoints, never run as code (`checkpoint`; extra ``torch``)
``.onnx``                  the tensors that convolutions, matrix products and BatchNorm read
=========================  ===================================================================

Every file that cannot be used is one clear `ModelError`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from inferometer.errors import MissingExtra, ModelError
from inferometer.models.checkpoint import SUFFIXES as CHECKPOINT_SUFFIXES
from inferometer.models.checkpoint import read_checkpoint
from inferometer.models.files import file_sha256, load, one_line
from inferometer.models.graph import all_nodes, constant_tensors
from inferometer.models.stored import Stored, WeightFile, without_prefixes

__all__ = ["open_weights", "weights_sha256"]

# First bytes of what is given for a file of weights by mistake.
_SIGNATURES = {
    b"version https://git-lfs": "a Git LFS pointer: run `git lfs pull`",
    b"<": "an HTML or XML page: download the file itself",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x1f\x8b": "a gzip archive: unpack it",
    b"\x89HDF": "an HDF5 file (Keras): convert it to .safetensors",
}

# Source: the safetensors format, https://github.com/huggingface/safetensors, "Format".
_SAFETENSORS_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}

_READERS_OF_WEIGHTS = ("Conv", "Gemm", "MatMul", "BatchNormalization")


@contextmanager
def open_weights(path: Path) -> Iterator[WeightFile]:
    """Open a file of weights; the suffix tells its form.

    Raises:
        ModelError: The file is missing, of another kind, truncated or damaged.
        MissingExtra: Its form needs a package that is not installed.
    """
    _look(path)
    suffix = path.suffix.lower()
    if suffix == ".safetensors":
        with _safetensors(path) as tensors:
            yield WeightFile(path, *without_prefixes(tensors))
    elif suffix == ".onnx":
        yield _onnx(path)
    elif suffix in CHECKPOINT_SUFFIXES:
        yield read_checkpoint(path)
    else:
        known = ", ".join((".safetensors", *CHECKPOINT_SUFFIXES, ".onnx"))
        raise ModelError(f"{path}: weights are read from files that end in {known}")


def weights_sha256(path: Path) -> str:
    """SHA-256 of a file of weights (of an ONNX file: with its external data), as 64 hexadecimal digits.

    Raises:
        ModelError: The file is missing or cannot be read.
    """
    _look(path)
    if path.suffix.lower() == ".onnx":
        return file_sha256(path)
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error


def _look(path: Path) -> None:
    """Refuse what is certainly no file of weights."""
    if path.is_dir():
        raise ModelError(f"{path}: a folder; name the file of weights inside it")
    try:
        if path.exists() and not path.is_file():
            raise ModelError(f"{path}: no ordinary file, so no weights")
        with path.open("rb") as stream:
            start = stream.read(64)
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file of weights; check the path") from error
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {one_line(error)}") from error
    if not start:
        raise ModelError(f"{path}: empty (0 bytes); download it again")
    for signature, kind in _SIGNATURES.items():
        if start.lstrip().startswith(signature):
            raise ModelError(f"{path}: no weights but {kind}")
    if start.startswith(b"PK") and path.suffix.lower() in (".safetensors", ".onnx"):
        raise ModelError(f"{path}: a ZIP archive or a PyTorch checkpoint: name it .pth if it is one")


@contextmanager
def _safetensors(path: Path) -> Iterator[dict[str, Stored]]:
    """The tensors of a .safetensors file; it stays mapped, each is copied when it is read."""
    try:
        # numpy learns of bfloat16 from ml_dtypes.
        import ml_dtypes  # noqa: F401
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise MissingExtra(f"{path}: .safetensors needs: pip install 'inferometer[weights]'") from error
    try:
        file: Any = safe_open(str(path), framework="np")
        names = list(file.keys())
        slices = {name: file.get_slice(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{path}: no usable .safetensors file, truncated or of another kind ({one_line(error)}): "
            "download it again"
        ) from error
    with file:
        yield {
            name: Stored(
                tuple(part.get_shape()),
                _SAFETENSORS_FLOATS.get(part.get_dtype(), str(part.get_dtype())),
                partial(file.get_tensor, name),
            )
            for name, part in slices.items()
        }


def _onnx(path: Path) -> WeightFile:
    model = load(path)
    if any(node.op_type.startswith(("QLinear", "Quantize", "Dequantize")) for node in all_nodes(model.graph)):
        raise ModelError(f"{path}: is quantized; weights are read from the float file it was made from")
    used = {
        name
        for node in model.graph.node
        if node.op_type in _READERS_OF_WEIGHTS
        for name in list(node.input)[1:]
    }
    stored = {name: part for name, part in constant_tensors(model.graph).items() if name in used}
    nodes = tuple(node for node in model.graph.node if node.op_type != "Constant")
    return WeightFile(path, {name: _of_onnx(part) for name, part in stored.items()}, nodes=nodes)


def _of_onnx(part: TensorProto) -> Stored:
    def read() -> NDArray[Any]:
        values: NDArray[Any] = numpy_helper.to_array(part)
        return values

    kind = TensorProto.DataType.Name(part.data_type).lower()
    return Stored(tuple(part.dims), {"float": "float32", "double": "float64"}.get(kind, kind), read)
