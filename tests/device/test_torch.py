"""PyTorch on an NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch

from inferometer import registry
from inferometer.contracts import Engine, Session
from inferometer.engines.torch import parts
from inferometer.engines.torch.fusion import fused
from inferometer.engines.torch.network import Network
from inferometer.errors import OutOfMemory
from tests.contract.engines import EngineContract, classifier
from tests.unit.engines.test_torch_session import blocks, program_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no NVIDIA GPU"),
]

Outputs = dict[str, np.ndarray]


def images(batch: int, seed: int = 1) -> Outputs:
    return {"input": np.random.default_rng(seed).standard_normal((batch, 3, 16, 16)).astype(np.float32)}


class TestTorchOnGpu(EngineContract):
    name = "torch"

    def open(self, engine: Engine, path: Path, batch: int = 2, **options: Any) -> Session:
        return engine.load(path, "cuda:0", "fp32", batch, {"mode": "eager", **options})


@pytest.fixture
def engine() -> Engine:
    return registry.engine("torch")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(classifier(), tmp_path / "mini.onnx")
    return tmp_path / "mini.onnx"


@pytest.fixture
def exact(engine: Engine, path: Path) -> np.ndarray:
    with engine.load(path, "cpu", "fp32", 8, {}) as session:
        return session.infer(images(8))["logits"]


def error(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def test_the_gpu_comes_first_and_has_its_uuid(engine: Engine) -> None:
    devices = engine.devices()
    assert [devices[0].name, devices[-1].name] == ["cuda:0", "cpu"]
    assert str(devices[0].uuid).startswith("GPU-")


@pytest.mark.parametrize("copies", ["included", "excluded"])
@pytest.mark.parametrize(
    ("precision", "least", "most"),
    [("fp32", 0.0, 1e-5), ("tf32", 1e-6, 1e-2), ("fp16", 1e-6, 1e-2), ("bf16", 1e-5, 5e-2)],
)
def test_each_precision_is_as_near_as_it_should_be_and_not_nearer(
    precision: Any, least: float, most: float, copies: str, engine: Engine, path: Path, exact: np.ndarray
) -> None:
    options = {"mode": "eager", "copies": copies}
    with engine.load(path, "cuda:0", precision, 8, options) as session:
        found = session.infer(images(8))["logits"]
        layers = session.executed()
        times = session.profile()
        assert session.settled["cuda_graph"]
        assert session.settled["float32_products"] == ("tf32" if precision == "tf32" else "ieee")
        assert session.device_peak_bytes()
    assert found.dtype == np.float32
    assert least <= error(found, exact) <= most
    multiplied = {layer.precision for layer in layers if layer.macs}
    assert multiplied <= {precision, "fp32"} if precision == "tf32" else multiplied == {precision}
    assert [time.name for time in times][1:-1] == [layer.name for layer in layers]
    assert all(time.seconds >= 0 for time in times)


@pytest.mark.parametrize("copies", ["included", "excluded"])
def test_slots_keep_their_own_results_over_many_rounds(copies: str, engine: Engine, path: Path) -> None:
    with engine.load(path, "cuda:0", "fp16", 8, {"mode": "eager", "copies": copies}) as session:
        slots = range(session.in_flight)
        assert len(slots) == {"included": 3, "excluded": 2}[copies]
        alone = [session.infer(images(8, seed=slot))["logits"] for slot in slots]
        for slot in slots:
            session.prepare(slot, images(8, seed=slot))
        for _ in range(20):
            for slot in slots:
                session.submit(slot)
            for slot in slots:
                session.wait(slot)
        for slot in slots:
            np.testing.assert_array_equal(session.results(slot)["logits"], alone[slot])


def test_one_in_flight_is_one_slot(engine: Engine, path: Path) -> None:
    with engine.load(path, "cuda:0", "fp16", 8, {"mode": "eager", "in_flight": 1}) as session:
        assert session.in_flight == 1


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_cut_batch_gives_what_the_whole_gives(
    precision: Any, engine: Engine, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine.load(path, "cuda:0", precision, 8, {"mode": "eager"}) as session:
        whole, layers = session.infer(images(8))["logits"], session.executed()
        assert session.settled["parts"] == 1
    monkeypatch.setattr(parts, "LARGEST_TENSOR", 2 * 12 * 8 * 8 + 1)
    with engine.load(path, "cuda:0", precision, 8, {"mode": "eager"}) as session:
        found, cut = session.infer(images(8))["logits"], session.executed()
        assert session.settled["parts"] == 4
    assert error(found, whole) < (1e-5 if precision == "fp32" else 5e-3)
    assert sum(one.macs or 0 for one in cut) == sum(one.macs or 0 for one in layers)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cudnns_merged_convolutions_compute_the_same(dtype: Any, tmp_path: Path) -> None:
    plain = program_of(blocks(), tmp_path, compute=dtype)
    device = torch.device("cuda:0")
    x = torch.randn(2, 4, 6, 6, device=device)
    with torch.inference_mode():
        wanted = Network(plain, dtype, device)(x)[0].cpu().numpy()
        found = Network(fused(plain), dtype, device)(x)[0].cpu().numpy()
    assert error(found, wanted) < (5e-3 if dtype == torch.float16 else 4e-2)


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A bound on what PyTorch may take of the GPU: 256 MiB more than now."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved(0) + 2**28) / total, 0)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0, 0)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("copies", ["included", "excluded"])
def test_the_session_after_one_without_memory_works(
    copies: str, engine: Engine, path: Path, exact: np.ndarray
) -> None:
    options = {"mode": "eager", "copies": copies}
    for _ in range(2):
        before = torch.cuda.memory_allocated(0)
        with pytest.raises(OutOfMemory, match=r"mini\.onnx: out of memory in torch: CUDA out of memory"):
            engine.load(path, "cuda:0", "fp32", 65536, options)
        assert torch.cuda.memory_allocated(0) <= before + 2**20
        with engine.load(path, "cuda:0", "fp32", 8, options) as session:
            assert error(session.infer(images(8))["logits"], exact) < 1e-5


def test_closing_gives_the_memory_back(engine: Engine, path: Path) -> None:
    with engine.load(path, "cuda:0", "fp16", 512, {"mode": "eager"}) as session:
        session.infer(images(512))
    taken = torch.cuda.memory_allocated(0)
    for _ in range(3):
        with engine.load(path, "cuda:0", "fp16", 512, {"mode": "eager"}) as session:
            session.infer(images(512))
        assert torch.cuda.memory_allocated(0) <= taken


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compile", "auto"])
def test_compiled_code_gives_the_same(mode: str, engine: Engine, path: Path, exact: np.ndarray) -> None:
    for precision, most in (("fp32", 1e-5), ("fp16", 1e-2)):
        with engine.load(path, "cuda:0", precision, 8, {"mode": mode}) as session:  # type: ignore[arg-type]
            assert session.settled["mode"] in ("eager", "compile")
            assert "compile_failed" not in session.settled
            if mode == "auto":
                both = session.settled["eager_s_per_call"], session.settled["compile_s_per_call"]
                assert session.settled["mode"] == ("compile" if both[1] < both[0] else "eager")
            assert error(session.infer(images(8))["logits"], exact) <= most
            assert {layer.precision for layer in session.executed() if layer.macs} == {precision}
            assert sum(time.seconds for time in session.profile()) > 0
