"""Command-line options that several verbs share, and their parsing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
import yaml

from inferometer import errors
from inferometer.config import Option
from inferometer.data.preprocess import PRESETS
from inferometer.errors import ConfigError, InferometerError, nearest
from inferometer.records import Precision, Record

__all__ = [
    "FAILED_TRIALS",
    "LABELS_HELP",
    "LARGEST",
    "PREPROCESS_HELP",
    "DecodeOption",
    "EngineOption",
    "InputOption",
    "InputShapeOption",
    "JsonOption",
    "LabelOffsetOption",
    "LabelsOption",
    "OutputOption",
    "batches_of",
    "bytes_of",
    "exit_code_of",
    "fraction_of",
    "inputs_of",
    "options_of",
    "precisions_of",
    "prices_of",
    "raise_failure",
    "refuse_overwriting",
    "refuse_twins",
]

FAILED_TRIALS = 9

LARGEST = 1e12
"""No price, rate or power is above: what is computed of it stays finite. Source: chosen."""

LABELS_HELP = "A file of labels, where it is not found with the images."

PREPROCESS_HELP = f"{', '.join(sorted(PRESETS))}, or a YAML file."

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")
]


DecodeOption = Annotated[
    str | None,
    typer.Option("--decode", help="exact (the default), or scaled: JPEGs reduced while they are decoded."),
]
OutputOption = Annotated[
    str | None, typer.Option("--output", help="The output that holds the class scores, where several could.")
]
LabelsOption = Annotated[Path | None, typer.Option("--labels", help=LABELS_HELP)]
LabelOffsetOption = Annotated[
    int | None,
    typer.Option("--label-offset", help="Added to labels: 1 if the model's class 0 is the background."),
]
EngineOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Of the engine: provider=openvino, ... Repeatable."),
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME=VALUE|NAME=LO:HI",
        help="What an input holds where no image is fed. Repeatable.",
    ),
]
InputShapeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input-shape", metavar="NAME=AxBxC", help="Sizes left open, without the batch. Repeatable."
    ),
]


def inputs_of(ranges: Sequence[str] | None, shapes: Sequence[str] | None) -> dict[str, dict[str, object]]:
    """``--input`` and ``--input-shape`` as the study file's ``inputs``.

    Raises:
        ConfigError: One is not of its form, or an input stands twice.
    """
    found: dict[str, dict[str, object]] = {}
    for option, key, texts, read in (
        ("--input", "range", ranges, _range),
        ("--input-shape", "shape", shapes, _shape),
    ):
        for text in texts or ():
            name, equals, value = text.rpartition("=")
            if not equals or not name:
                raise ConfigError(f"{option} {text!r}: wants the input's name, = and a value")
            if key in found.setdefault(name, {}):
                raise ConfigError(f"{option}: the input {name!r} stands twice")
            found[name][key] = read(value, f"{option} {text!r}")
    return found


def _range(text: str, where: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        return float(low), float(high or low)
    except ValueError as error:
        raise ConfigError(f"{where}: wants a number, or two as in 0:255") from error


def _shape(text: str, where: str) -> tuple[int, ...]:
    sides = text.split("x")
    if not all(side.isdecimal() and int(side) > 0 for side in sides):
        raise ConfigError(f"{where}: wants whole numbers from 1, such as 3x224x224")
    return tuple(int(side) for side in sides)


def options_of(texts: Sequence[str] | None) -> dict[str, Option]:
    """``provider=openvino``, ``streams=2`` as an engine's options; values as YAML has them.

    Raises:
        ConfigError: One is no such pair, or its value is no text, number or truth.
    """
    found: dict[str, Option] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"--option: {text!r} is no option: write for example provider=openvino")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            found[key] = value
        if not isinstance(found[key], str | int | float | bool | None):
            raise ConfigError(f"--option: {key}: {value!r} is no text, number, true or false")
    return found


def precisions_of(text: str) -> tuple[Precision, ...]:
    """``fp32,int8`` as precisions.

    Raises:
        ConfigError: One is unknown; the message offers the nearest.
    """
    known = get_args(Precision)
    words = _words(text, "--precision")
    for word in words:
        if word not in known:
            raise ConfigError(f"--precision: {word!r} is not known{nearest(word, known)}")
    return cast(tuple[Precision, ...], words)


def batches_of(text: str) -> tuple[int, ...]:
    """``1,8,32`` as batches.

    Raises:
        ConfigError: One is no positive whole number.
    """
    words = _words(text, "--batch")
    for word in words:
        if not word.isdecimal() or int(word) < 1:
            raise ConfigError(f"--batch: {word!r} is no batch: wants whole numbers from 1, such as 1,8,32")
    return tuple(int(word) for word in words)


def fraction_of(text: str, option: str) -> float:
    """``0.5%`` (half a point of accuracy) as a fraction.

    Raises:
        ConfigError: It is no percentage from 0 to 100: 0.005 and 0.5 could mean either.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*%", text.strip())
    if match is None or float(match[1]) > 100:
        raise ConfigError(f"{option}: {text!r} is no percentage: write for example 0.5%")
    return float(match[1]) / 100


def prices_of(texts: Iterable[str]) -> dict[str, float]:
    """``p4=2000`` as prices by name, in any one currency.

    Raises:
        ConfigError: One is no such pair, is not above 0, or a name has two.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        price = float(number) if re.fullmatch(r"\d+(\.\d+)?", number) else 0.0
        if not name or not 1 / LARGEST <= price <= LARGEST:
            raise ConfigError(f"--price: {text!r} is no price: write for example {name or 'p4'}=2000")
        if name in found:
            raise ConfigError(f"--price: {name} has two prices")
        found[name] = price
    return found


def bytes_of(text: str, option: str) -> int:
    """``256MB``, ``1.5GB`` or a plain number of bytes; KB, MB and GB are powers of 1024.

    Raises:
        ConfigError: It is no size of at least 1 MB.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(|B|KB|MB|GB)", text.strip().upper())
    factor = {"": 1, "B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3}
    size = int(float(match[1]) * factor[match[2]]) if match else 0
    if not 1024**2 <= size < 2**60:
        raise ConfigError(f"{option}: {text!r} is no size from 1 MB: write for example 256MB")
    return size


def refuse_overwriting(outputs: Mapping[str, Path | None], inputs: Iterable[Path]) -> None:
    """Refuse to write over what is read, also through links, and two outputs into one file.

    Args:
        outputs: By option; None where it was not given.
        inputs: Files, and folders whose files are not to be touched.

    Raises:
        ConfigError: An output is an input, lies in place of a file of an input folder, or stands twice.
    """
    wanted = {option: path for option, path in outputs.items() if path is not None}
    for option, path in wanted.items():
        for known in inputs:
            if _is_inside(path, known) or _is_same(path, known):
                raise ConfigError(
                    f"{option} {path}: would overwrite what is read ({known}): name another file"
                )
        twins = [other for other in wanted if other != option and _is_same(path, wanted[other])]
        if twins:
            raise ConfigError(f"{option} and {twins[0]} name the same file, {path}: name two")


def refuse_twins(paths: Sequence[Path]) -> None:
    """Refuse one place that is named twice, also through links.

    Raises:
        ConfigError: One is.
    """
    places = [path.resolve().parent if path.is_file() else path.resolve() for path in paths]
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise ConfigError(f"{path} is named twice")


def _is_inside(path: Path, folder: Path) -> bool:
    """Whether an existing file lies in an existing folder."""
    try:
        return folder.is_dir() and path.is_file() and path.resolve().is_relative_to(folder.resolve())
    except OSError:  # no such name can exist; writing it says so
        return False


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them does not exist
        return one.resolve() == other.resolve()


def exit_code_of(records: Iterable[Record]) -> int:
    """9 when some trials ``failed`` or timed out, else 0."""
    return FAILED_TRIALS if any(record.status in ("failed", "timeout") for record in records) else 0


def raise_failure(records: Iterable[Record]) -> None:
    """For commands about one thing: raise the first trial's failure as the error that it was.

    Raises:
        InferometerError: Of the class that ended the trial.
    """
    for record in records:
        if record.status != "ok":
            kind: type[InferometerError] = getattr(errors, record.error or "EngineError")
            raise kind(record.reason or record.status)


def _words(text: str, option: str) -> tuple[str, ...]:
    words: Sequence[str] = [word.strip() for word in text.split(",")]
    if not all(words):
        raise ConfigError(f"{option}: {text!r} has an empty entry")
    if len(set(words)) != len(words):
        raise ConfigError(f"{option}: {text!r} names one entry twice")
    return tuple(words)
