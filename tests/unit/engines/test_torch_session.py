"""The parts of the PyTorch engine that need no GPU to be seen: merging, cutting, conversion, errors."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch

from inferometer import registry
from inferometer.engines.torch import engine as plugin
from inferometer.engines.torch import parts, settings
from inferometer.engines.torch.capture import in_parts
from inferometer.engines.torch.fusion import fused, keeping_the_faster
from inferometer.engines.torch.graph import Program, build_program, read, with_batch
from inferometer.engines.torch.layers import executed_layers, rounding_steps
from inferometer.engines.torch.network import Network
from inferometer.errors import EngineError, InferometerError, MissingExtra, OutOfMemory, Unsupported
from tests.contract.engines import classifier

CPU = torch.device("cpu")

# Two blocks as ResNet has them: one whose shortcut is a convolution, one whose shortcut is the block's input.
BLOCKS = """
<ir_version: 8, opset_import: ["" : 17]>
blocks (float[N, 4, 6, 6] x) => (float[N, 4] y) {
  a = Conv<pads = [1, 1, 1, 1]>(x, w1, b1)  ar = Relu(a)
  c = Conv<pads = [1, 1, 1, 1]>(ar, w2, b2)  s = Conv(x, w3)  d = Add(c, s)  dr = Relu(d)
  e = Conv<group = 2, pads = [1, 1, 1, 1]>(dr, w4)  er = Relu(e)
  f = Conv(er, w3)  g = Add(dr, f)  gr = Relu(g)
  p = GlobalAveragePool(gr)  y = Flatten(p)
}
"""
SHAPES = {
    "w1": (4, 4, 3, 3),
    "b1": (4,),
    "w2": (4, 4, 3, 3),
    "b2": (4,),
    "w3": (4, 4, 1, 1),
    "w4": (4, 2, 3, 3),
}


def blocks() -> onnx.ModelProto:
    model, generator = parser.parse_model(BLOCKS), np.random.default_rng(0)
    for name, shape in SHAPES.items():
        model.graph.initializer.append(
            numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)
        )
    return model


def program_of(model: onnx.ModelProto, folder: Path, batch: int = 2, compute: Any = torch.float32) -> Program:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return build_program(with_batch(read(path), batch, path), compute, path)


def convolved(x: Any, w: Any, b: Any, *where: Any) -> Any:
    return torch.nn.functional.conv2d(x, w, b, *where)


@pytest.fixture
def as_cudnn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """cuDNN's functions with their meaning, on the CPU; the list fills with what was called."""
    called: list[str] = []

    def relu(x: Any, w: Any, b: Any, *where: Any) -> Any:
        called.append("relu")
        return torch.relu(convolved(x, w, b, *where))

    def add_relu(x: Any, w: Any, z: Any, alpha: float, b: Any, *where: Any) -> Any:
        called.append("add_relu")
        return torch.relu(convolved(x, w, b, *where) + alpha * z)

    monkeypatch.setattr(torch, "cudnn_convolution_relu", relu)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", add_relu)
    return called


def ran(program: Program, *inputs: Any) -> Any:
    with torch.inference_mode():
        return Network(program, torch.float32, CPU)(*inputs)[0]


def test_convolutions_take_over_the_add_and_the_relu_behind_them(as_cudnn: list[str], tmp_path: Path) -> None:
    plain = program_of(blocks(), tmp_path)
    merged = fused(plain)
    x = torch.randn(2, 4, 6, 6)
    torch.testing.assert_close(ran(merged, x), ran(plain, x))
    assert as_cudnn == ["relu", "add_relu", "add_relu"]
    assert [len(step.fallback) for step in merged.steps if step.op == "Conv"].count(3) == 2
    assert [step.op for step in merged.steps].count("Relu") == 1  # behind the grouped one
    layers = executed_layers(merged, 1, frozenset())
    assert sum(one.macs or 0 for one in layers) == sum(step.macs or 0 for step in plain.steps)


def test_what_others_read_as_well_is_not_merged(tmp_path: Path) -> None:
    model = blocks()
    model.graph.output.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, None))
    model.graph.output.append(onnx.helper.make_tensor_value_info("g", onnx.TensorProto.FLOAT, None))
    merged = fused(program_of(model, tmp_path))
    assert [len(step.fallback) for step in merged.steps if step.fallback] == [3]


@pytest.mark.parametrize("slower", ["whole", "parts", "none works"])
def test_a_merged_step_that_is_slower_or_fails_is_taken_apart(
    slower: str, as_cudnn: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if slower == "none works":

        def fails(*_: Any) -> Any:
            raise RuntimeError("GET was unable to find an engine to execute this computation")

        monkeypatch.setattr(torch, "cudnn_convolution_relu", fails)
        monkeypatch.setattr(torch, "cudnn_convolution_add_relu", fails)
    plain = program_of(blocks(), tmp_path)
    network, x = Network(fused(plain), torch.float32, CPU), torch.randn(2, 4, 6, 6)
    calls = iter(range(1000))

    def seconds(run: Callable[[], None]) -> float:
        run()
        turn = next(calls) if slower != "none works" else 0
        return float(turn % 2 == (0 if slower == "whole" else 1))

    with torch.inference_mode():
        kept = keeping_the_faster(network, [x], seconds)
    merged = sum(bool(step.fallback) for step in kept.steps)
    assert merged == (3 if slower == "parts" else 0)
    if slower == "none works":
        torch.testing.assert_close(ran(kept, x), ran(plain, x))


def test_memory_that_ends_while_merging_is_not_taken_for_a_missing_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "cudnn_convolution_relu", fails)
    network = Network(fused(program_of(blocks(), tmp_path)), torch.float32, CPU)

    def seconds(run: Callable[[], None]) -> float:
        run()
        return 0.0

    with torch.inference_mode(), pytest.raises(torch.OutOfMemoryError):
        keeping_the_faster(network, [torch.randn(2, 4, 6, 6)], seconds)


def test_a_batch_of_too_large_tensors_is_cut_into_the_fewest_equal_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = blocks()
    whole = program_of(model, tmp_path, 12)
    assert whole.largest == 12 * 4 * 6 * 6
    path = tmp_path / "model.onnx"
    content = with_batch(read(path), 12, path)
    assert parts.in_equal_parts(content, whole, 12, torch.float32, path).count == 1
    monkeypatch.setattr(parts, "LARGEST_TENSOR", 3 * 4 * 6 * 6 + 1)
    cut = parts.in_equal_parts(content, whole, 12, torch.float32, path)
    assert (cut.count, cut.split) == (4, (True,))
    x = torch.randn(12, 4, 6, 6)
    with torch.inference_mode():
        call = in_parts(Network(cut.program, torch.float32, CPU), cut.count, cut.split)
        (found,) = call(x)
        first = Network(cut.program, torch.float32, CPU)(*cut.first([x]))[0]
    torch.testing.assert_close(found, ran(whole, x))
    torch.testing.assert_close(first, found[:3])
    layers = executed_layers(cut.program, cut.count, frozenset())
    assert sum(one.macs or 0 for one in layers) == sum(step.macs or 0 for step in whole.steps)
    monkeypatch.setattr(parts, "LARGEST_TENSOR", 4 * 6 * 6 - 1)
    with pytest.raises(Unsupported, match="a tensor has 1728 elements, more than 143; give a smaller"):
        parts.in_equal_parts(content, whole, 12, torch.float32, path)


def test_inputs_without_the_batch_go_to_each_part_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[3] limits, float[N, 3] x) => (float[N, 3] y) { y = Add(x, limits) }"""
    whole = program_of(parser.parse_model(text), tmp_path, 4)
    path = tmp_path / "model.onnx"
    monkeypatch.setattr(parts, "LARGEST_TENSOR", 6)
    content = with_batch(read(path), 4, path)
    cut = parts.in_equal_parts(content, whole, 4, torch.float32, path)
    assert (cut.count, cut.split) == (2, (False, True))


def test_a_batch_that_is_computed_along_cannot_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 3] x) => (float[N, 3] y) { m = ReduceMean<axes = [0]>(x)  y = Sub(x, m) }"""
    whole = program_of(parser.parse_model(text), tmp_path, 4)
    path = tmp_path / "model.onnx"
    monkeypatch.setattr(parts, "LARGEST_TENSOR", 6)
    with pytest.raises(Unsupported, match=r"its batch cannot be cut: .*ReduceMean"):
        parts.in_equal_parts(with_batch(read(path), 4, path), whole, 4, torch.float32, path)


def test_rounding_to_tf32_is_seen_in_what_a_step_computes(tmp_path: Path) -> None:
    program = program_of(classifier(), tmp_path)
    network, x = Network(program, torch.float32, CPU), torch.randn(2, 3, 16, 16)
    with torch.inference_mode():
        assert rounding_steps(network, [x]) == frozenset()
        for runner in network.steps():
            exact = runner.function

            def rounded(first: Any, *rest: Any, exact: Any = exact) -> Any:
                return exact((first.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32), *rest)

            if runner.step.macs:
                runner.function = rounded
        found = rounding_steps(network, [x])
    assert found == {step.name for step in program.steps if step.macs}
    named = {one.name: one.precision for one in executed_layers(program, 1, found)}
    assert {named[name] for name in found} == {"tf32"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_computed_and_floats_handed_out(dtype: Any, tmp_path: Path) -> None:
    exact = ran(program_of(classifier(), tmp_path), torch.ones(2, 3, 16, 16))
    program = program_of(classifier(), tmp_path, compute=dtype)
    network = Network(program, dtype, CPU)
    with torch.inference_mode():
        (found,) = network(torch.ones(2, 3, 16, 16))
    assert found.dtype == torch.float32
    assert float((found - exact).abs().max()) <= 0.03 * float(exact.abs().max())
    name = {torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
    assert {one.precision for one in executed_layers(program, 1, frozenset())} == {name}


@pytest.mark.parametrize("second", ["x", "w", "k"])
def test_an_output_may_be_an_input_or_a_constant(second: str, tmp_path: Path) -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 3] x) => (float[N, 3] y, float[A, B] {second}) {{
      k = Constant<value = float[1, 3] {{2.0, 3.0, 4.0}}>()  a = Mul(x, k)  y = Add(a, w) }}""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 3), np.float32), "w"))
    onnx.save(model, tmp_path / "model.onnx")
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    wanted = {"x": x, "w": np.ones((1, 3), np.float32), "k": np.array([[2, 3, 4]], np.float32)}[second]
    with registry.engine("torch").load(tmp_path / "model.onnx", "cpu", "fp32", 2, {"threads": 1}) as session:
        assert [one.shape for one in session.outputs] == [(2, 3), wanted.shape]
        found = session.infer({"x": x})
    np.testing.assert_array_equal(found["y"], x * [[2, 3, 4]] + 1)
    np.testing.assert_array_equal(found[second], wanted)


def test_lrn_of_large_halves_does_not_overflow(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, 3, 2, 2] x) => (float[N, 3, 2, 2] y) { y = LRN<size = 3>(x) }"""
    program = program_of(parser.parse_model(text), tmp_path, compute=torch.float16)
    with torch.inference_mode():
        (found,) = Network(program, torch.float16, CPU)(torch.full((2, 3, 2, 2), 1000.0))
    # 1000 / (1 + 1e-4 / 3 * 3 * 1000 ** 2) ** 0.75; squares past 65504 would make it 0.
    assert abs(float(found.min()) - 31.4) < 0.1


def test_a_weight_beyond_fp16_is_refused(tmp_path: Path) -> None:
    model = blocks()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((4, 4, 3, 3), 1e6, np.float32), "w1"))
    with pytest.raises(Unsupported, match=r"weight 'w1' holds 1e\+06, which fp16 cannot"):
        Network(program_of(model, tmp_path, compute=torch.float16), torch.float16, CPU)


@pytest.mark.parametrize(
    ("vendor_error", "ours"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemory),
        (MemoryError(), OutOfMemory),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9"), OutOfMemory),
        (RuntimeError("CUDNN_STATUS_ALLOC_FAILED"), OutOfMemory),
        (NotImplementedError("\"pool\" not implemented for 'UInt16'"), Unsupported),
        (RuntimeError("\"conv\" not implemented for 'Half'"), Unsupported),
        (RuntimeError("CUDA error: an illegal\nmemory access"), EngineError),
    ],
)
def test_every_error_is_mapped(vendor_error: Exception, ours: type[InferometerError]) -> None:
    with (
        pytest.raises(ours, match=r"^m\.onnx: [^\n]+$") as caught,
        settings.torch_errors(Path("m.onnx")),
    ):
        raise vendor_error
    assert type(caught.value) is ours


def test_memory_that_ends_within_a_capture_is_told_from_what_fails_then() -> None:
    def captured() -> None:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    with pytest.raises(OutOfMemory, match="Tried to allocate"), settings.torch_errors(Path("m.onnx")):
        captured()


def test_a_failed_call_holds_nothing() -> None:
    class Held:
        pass

    alive: list[weakref.ref[Held]] = []

    def fails() -> None:
        held = Held()
        alive.append(weakref.ref(held))
        raise RuntimeError("CUDA error: unknown")

    with pytest.raises(EngineError) as caught, settings.torch_errors(Path("m.onnx")):
        fails()
    assert caught.value.__cause__ is not None
    assert alive[0]() is None


def test_settings_of_the_process_are_put_back() -> None:
    def state() -> tuple[str, bool, bool, bool]:
        cudnn = torch.backends.cudnn
        return (
            torch.get_float32_matmul_precision(),
            torch.backends.cuda.matmul.allow_tf32,
            cudnn.allow_tf32,
            cudnn.benchmark,
        )

    before = state()
    with settings.arithmetic(tf32=True, gpu=True):
        assert state() == ("high", True, True, True)
        with settings.arithmetic(gpu=True):
            assert state() == ("highest", False, False, True)
        with settings.arithmetic():
            assert state() == ("highest", False, True, True)
        assert state() == ("high", True, True, True)
    assert state() == before


@pytest.mark.parametrize(
    ("features", "refused"), [(("avx2",), {"fp16", "bf16"}), (("avx512_bf16", "avx512_fp16"), set())]
)
def test_halves_that_the_cpu_would_emulate_are_refused(
    features: tuple[str, ...], refused: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, reasons = plugin.cpu_facts()
    facts = real.model_copy(update={"features": features})
    monkeypatch.setattr(plugin, "cpu_facts", lambda: (facts, reasons))
    found = registry.engine("torch").precisions("cpu", {})
    assert {name for name in ("fp16", "bf16") if found[name]} == refused
    assert all("emulate" in str(found[name]) for name in refused)


def test_the_extra_that_brings_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "inferometer.engines.torch.engine")
    with pytest.raises(MissingExtra, match=r"needs the package 'torch': pip install 'inferometer\[torch\]'"):
        registry.engine("torch")


def test_no_file_of_the_engine_is_imported_without_being_asked_for() -> None:
    code = "import sys; import inferometer.registry as r; r.engine_names(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
