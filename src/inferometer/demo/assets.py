"""Places the shipped digits (images, model, preprocessing) as ordinary files into a folder.

Source: E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, https://doi.org/10.24432/C50P49, CC BY 4.0; ``README.md`` beside this file says what was changed.
"""

import io
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from inferometer.errors import StoreError

__all__ = ["DigitsFiles", "extract"]


@dataclass(frozen=True)
class DigitsFiles:
    """Where the extracted files lie.

    Attributes:
        images: Folder with one sub-folder per class, ``0`` to ``9``, of 8x8 8-bit grayscale PNGs. None of
            them was used to train the model.
        model: ONNX classifier, ``input`` [N, 1, 8, 8] float32 to ``logits`` [N, 10] float32.
        preprocess: YAML with the preprocessing that the model expects.
    """

    images: Path
    model: Path
    preprocess: Path


def extract(to: Path) -> DigitsFiles:
    """Extracts the images, the model and its preprocessing into ``to``, made if absent.

    Files already there with the shipped content are left alone, so that calling again changes nothing. Each
    of the three appears at once and complete, or not at all.

    Args:
        to: Folder that receives ``images/``, ``digits.onnx`` and ``digits.yaml``; may hold other things.

    Returns:
        Where the three lie.

    Raises:
        StoreError: ``to`` cannot be written, or one of the three is there with other content.
    """
    placed = DigitsFiles(to / "images", to / "digits.onnx", to / "digits.yaml")
    package = files("inferometer.demo")
    try:
        to.mkdir(parents=True, exist_ok=True)
        _place(placed.images, _unzipped(package.joinpath("digits.zip").read_bytes()))
        for path in (placed.model, placed.preprocess):
            _place(path, package.joinpath(path.name).read_bytes())
    except OSError as error:
        raise StoreError(
            f"cannot write the demonstration's files into {to}: {error.strerror or error}; "
            "choose a folder that can be written, with 10 MB free"
        ) from error
    return placed


def _unzipped(archive: bytes) -> dict[str, bytes]:
    """Content by relative path, of the files in a zip."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def _place(path: Path, content: bytes | dict[str, bytes]) -> None:
    """Puts a file (bytes) or folder (bytes by relative path) at ``path`` by one rename, if absent."""
    if not _occupied(path, content):
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".digits-") as scratch:
            fresh = Path(scratch) / path.name
            _write(fresh, content)
            try:
                fresh.rename(path)
            except OSError:
                # Another process may have been faster; its files serve as well.
                if not _occupied(path, content):
                    raise


def _write(path: Path, content: bytes | dict[str, bytes]) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    for name, data in content.items():
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _occupied(path: Path, content: bytes | dict[str, bytes]) -> bool:
    """Whether ``path`` holds exactly ``content``; False if nothing is there, an error if other content."""
    if not path.exists():
        return False
    found: bytes | dict[str, bytes] | None = None
    if isinstance(content, bytes):
        found = path.read_bytes() if path.is_file() else None
    elif path.is_dir():
        found = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    if found != content:
        raise StoreError(
            f"{path} is there already and differs from what ships with Inferometer; "
            "remove it or choose another folder"
        )
    return True
