"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.contract.engines import classifier
from tests.plugins import install_faulty_engine


@pytest.fixture(autouse=True, scope="session")
def no_terminal_width() -> None:
    """What is printed is as wide as in a pipe, whatever shell or test runner says of a terminal."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    """A miniature classifier: ``input`` [N, 3, 16, 16] to ``logits`` [N, 5]."""
    path = tmp_path / "mini.onnx"
    onnx.save(classifier(), path)
    return path


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine ``faulty``, here and in workers."""
    folder = install_faulty_engine(tmp_path / "site")
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", str(folder) if before is None else f"{folder}{os.pathsep}{before}")
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("faulty_engine", None)


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder named by INFEROMETER_TEST_DATA, with ``models/`` and ``imagenet-sample/``."""
    place = os.environ.get("INFEROMETER_TEST_DATA")
    if not place:
        pytest.skip("INFEROMETER_TEST_DATA is not set: no trained ImageNet model and images here")
    return Path(place)
