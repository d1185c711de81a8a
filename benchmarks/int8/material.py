"""Models, images and quantized files for the scripts of this folder, and their common options."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import Ran, inferometer, run
from peers import PEERS

from inferometer.data.imageset import ImageEntry, open_set
from inferometer.data.preprocess import Preprocessing, load
from inferometer.environment.cpu import cpu_facts

TRAINED = "efficientnet_lite0"


@dataclass(frozen=True)
class Material:
    """One model, its preprocessing, and the folder where what is made of it goes."""

    name: str
    model: Path
    preset: str
    input: str
    preprocessing: Preprocessing
    folder: Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all scripts have."""
    data = os.environ.get("INFEROMETER_TEST_DATA")
    parser.add_argument(
        "--data", type=Path, default=Path(data) if data else None,
        help="folder with models/efficientnet_lite0.onnx and imagenet-sample/ (or INFEROMETER_TEST_DATA)",
    )  # fmt: skip
    parser.add_argument(
        "--peers-python", type=Path, default=Path("peers/bin/python"),
        help="of the environment that setup_peers.sh makes (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--peers", default=",".join(PEERS), help="which of them, by commas: %(default)s")
    parser.add_argument("--memory", type=float, default=12.0, help="GB for one process (%(default)s)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse, and check what all scripts need; ``peers`` becomes a list of names."""
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give --data DIR or set INFEROMETER_TEST_DATA")
    arguments.data = arguments.data.absolute()
    arguments.peers_python = arguments.peers_python.absolute()  # not resolved: a link tells its environment
    arguments.peers = [name for name in arguments.peers.split(",") if name]
    for name in arguments.peers:
        if name not in PEERS:
            parser.error(f"unknown peer {name!r}: {', '.join(PEERS)}")
    return arguments


def material(name: str, data: Path, folder: Path) -> Material:
    """The trained model, or a built-in network with random weights, exported into ``folder``.

    By commands, so that this process stays small (see ``children.run``).
    """
    model, preset = data / "models" / f"{name}.onnx", "efficientnet-lite"
    if name != TRAINED:
        known = {item["name"]: item["preprocess"] for item in _answer("models", "list")}
        if name not in known:
            raise SystemExit(f"unknown model {name!r}: {TRAINED}, {', '.join(known)}")
        model, preset = folder / f"{name}.onnx", known[name]
        if not model.exists():
            _answer("models", "export", name, str(model))
    (wanted,) = _answer("models", "show", str(model))["inputs"]
    shape = tuple(size if isinstance(size, int) else None for size in wanted["shape"])
    return Material(name, model, preset, wanted["name"], load(preset).for_input(shape), folder)


def halves(data: Path) -> tuple[list[ImageEntry], list[ImageEntry]]:
    """The sample's images at even and at odd positions, in the order of their names."""
    entries = list(open_set(data / "imagenet-sample").entries)
    return entries[::2], entries[1::2]


def calibrate(
    of: Material,
    root: Path,
    names: Sequence[str],
    out: Path,
    *,
    engine: str = "onnxruntime",
    method: str = "kl",
) -> Ran:
    """``inferometer calibrate`` on these images of ``root``."""
    listed = out.with_suffix(".txt")
    listed.write_text("\n".join(names) + "\n", encoding="utf-8")
    return run(
        inferometer(
            "calibrate", str(of.model), "--data", str(root), "--preprocess", of.preset,
            "--split", str(listed), "--images", str(len(names)),
            "--method", method, "--engine", engine, "--out", str(out),
        )
    )  # fmt: skip


def reform(of: Material, table: Path, out: Path, engine: str = "openvino") -> Ran:
    """The same ranges in the form that another engine wants."""
    words = ("calibrate", str(of.model), "--table", str(table), "--engine", engine, "--out", str(out))
    return run(inferometer(*words))


def peer(
    name: str,
    of: Material,
    images: Sequence[Path],
    out: Path | None,
    options: argparse.Namespace,
    batch: int = 1,
) -> Ran:
    """A peer's calibration of the same model on the same images."""
    how = of.preprocessing.model_dump(mode="json")
    job: dict[str, Any] = {
        "peer": name,
        "model": str(of.model),
        "out": str(out) if out else None,
        "images": [str(path) for path in images],
        "input": of.input,
        "batch": batch,
        "memory_mb": options.memory * 1000,
        "reduce_range": not vnni(),
        "preprocess": how,
    }
    file = of.folder / "job.json"
    file.write_text(json.dumps(job), encoding="utf-8")
    python = options.peers_python
    own = python.parent.parent / name.split()[0] / "bin" / "python"
    python = own if own.exists() else python
    if not python.exists():
        return Ran(0.0, 0.0, 0.0, None, f"there is no {python}: see setup_peers.sh")
    command = [str(python), str(Path(__file__).with_name("peers.py").absolute()), str(file)]
    return run(command, options.memory * 1000, folder=of.folder)  # some write logs where they are


def vnni() -> bool:
    """Whether 8-bit weights are safe: without VNNI the products of pairs saturate, and peers reduce them."""
    return bool(cpu_facts()[0].int8_dot)


def cpu() -> dict[str, Any]:
    """The CPU, for the record."""
    facts = cpu_facts()[0]
    return {"model": facts.model, "cores": os.cpu_count(), "int8_dot": facts.int8_dot}


def _answer(*words: str) -> Any:
    ran = run(inferometer(*words))
    if ran.reason:
        raise SystemExit(f"inferometer {' '.join(words)}: {ran.reason}")
    return ran.answer
