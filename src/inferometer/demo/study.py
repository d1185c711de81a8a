"""The demonstration's study file: written out, so that a reader can change it and run it again."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from inferometer.demo.assets import DigitsFiles
from inferometer.errors import StoreError

__all__ = ["write_study"]


def write_study(digits: DigitsFiles, path: Path) -> Path:
    """Write the study beside the extracted digits and return ``path``.

    Args:
        digits: Where the images, the model and its preprocessing lie, below ``path``'s folder.
        path: The YAML file to write; one that is there already is replaced.

    Raises:
        StoreError: It cannot be written.
    """
    text = files("inferometer.demo").joinpath("demo.yaml").read_text(encoding="utf-8")
    for name in ("images", "model", "preprocess"):
        place = getattr(digits, name).relative_to(path.parent)
        text = text.replace(f"{{{name}}}", f"./{place}")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: could not write: {error.strerror}") from error
    return path
