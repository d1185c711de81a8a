"""The session of TensorRT's engines does what every session must, on the tests' own TensorRT and CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from inferometer.contracts import Engine
from inferometer.engines import schemes
from inferometer.engines.tensorrt.engine import TensorRt
from tests.contract.engines import EngineContract
from tests.unit.engines.cuda_fakes import FakeCuda
from tests.unit.engines.tensorrt_fakes import FakeTensorRt


class TestTensorRt(EngineContract):
    name: ClassVar[str] = "tensorrt"

    @pytest.fixture
    def engine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        cuda = FakeCuda(gpus=2, capability=(7, 5))
        return TensorRt("tensorrt", "TensorRT", FakeTensorRt(cuda), cuda, schemes.tensorrt)
