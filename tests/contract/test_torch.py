from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch

from inferometer import registry
from inferometer.contracts import Engine, Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.errors import EngineError, Unsupported
from inferometer.models import networks
from tests.contract.engines import EngineContract

# The blocks of MobileNet v2 and v3, SqueezeNet, DenseNet and ShuffleNet, as their exporters write them.
BLOCKS = {
    "mobilenet": """
      a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w83)  b = Clip<min = 0.0, max = 6.0>(a)
      c = Conv<group = 8, pads = [1, 1, 1, 1]>(b, w813)  d = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c)
      e = Mul(c, d)  f = GlobalAveragePool(e)  g = Conv(f, w88)  h = Sigmoid(g)  i = Mul(e, h)
      k = Add(i, b)  l = ReduceMean<axes = [2, 3], keepdims = 0>(k)  y = Softmax(l)""",
    "squeezenet": """
      a = Conv<strides = [2, 2]>(x, w83)  b = Relu(a)  p = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(b)
      c = Conv(p, w88)  d = Relu(c)  e = Conv<pads = [1, 1, 1, 1]>(p, w883)  f = Relu(e)
      g = Concat<axis = 1>(d, f)  h = GlobalAveragePool(g)  y = Flatten(h)""",
    "densenet": """
      a = Conv<pads = [1, 1, 1, 1]>(x, w83)  b = BatchNormalization(a, s, t, m, v)  c = Relu(b)
      d = Conv<pads = [1, 1, 1, 1]>(c, w883)  e = Concat<axis = 1>(c, d)
      f = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(e)  h = Concat<axis = 1>(f, f)
      i = BatchNormalization(h, s4, t4, m4, v4)  k = Relu(i)  l = GlobalAveragePool(k)  y = Flatten(l)""",
    "shufflenet": """
      a = Conv<pads = [1, 1, 1, 1], group = 1>(x, w83)  b = Reshape(a, apart)
      c = Transpose<perm = [0, 2, 1, 3, 4]>(b)  d = Reshape(c, together)
      e, f = Split<axis = 1>(d)  g = Conv<group = 4, pads = [1, 1, 1, 1]>(f, w413)  h = Concat<axis = 1>(e, g)
      k = GlobalAveragePool(h)  y = Squeeze<axes = [2, 3]>(k)""",
}
SHAPES = {
    "w83": (8, 3, 3, 3), "w813": (8, 1, 3, 3), "w88": (8, 8, 1, 1), "w883": (8, 8, 3, 3),
    "w413": (4, 1, 3, 3), "s": 8, "t": 8, "m": 8, "v": 8, "s4": 32, "t4": 32, "m4": 32, "v4": 32,
}  # fmt: skip


def block(name: str) -> onnx.ModelProto:
    model = parser.parse_model(
        '<ir_version: 7, opset_import: ["" : 10]> g (float[N, 3, 16, 16] x) => (float[N, C] y) '
        f"{{ {BLOCKS[name]} }}"
    )
    generator = np.random.default_rng(0)
    used = {operand for node in model.graph.node for operand in node.input}
    for weight in sorted(used & SHAPES.keys()):
        values = generator.standard_normal(SHAPES[weight]).astype(np.float32)
        values = np.abs(values) + 0.1 if weight.startswith("v") else values
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), weight))
    for target, sides in {"apart": [0, 2, 4, 16, 16], "together": [0, -1, 16, 16]}.items():
        if target in used:
            model.graph.initializer.append(numpy_helper.from_array(np.array(sides, np.int64), target))
    return model


def same_as_onnxruntime(path: Path, batch: int, tolerance: float) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    answers = []
    for name in ("onnxruntime", "torch"):
        with registry.engine(name).load(path, "cpu", "fp32", batch, {"threads": 2}) as session:
            answers.append(session.infer(synthetic_feeds(session.inputs, 0)))
    wanted, found = answers
    for name, values in wanted.items():
        assert np.abs(found[name] - values).max() <= tolerance * np.abs(values).max()


class TestTorch(EngineContract):
    name = "torch"

    def open(self, engine: Engine, path: Path, batch: int = 2, **options: Any) -> Session:
        return engine.load(path, "cpu", "fp32", batch, {"threads": 1, **options})

    @pytest.mark.parametrize("name", BLOCKS)
    def test_blocks_of_common_networks_agree_with_onnxruntime(self, name: str, tmp_path: Path) -> None:
        onnx.save(block(name), tmp_path / "block.onnx")
        same_as_onnxruntime(tmp_path / "block.onnx", 2, 1e-5)

    def test_what_ran_is_said(self, engine: Engine, path: Path) -> None:
        threads = torch.get_num_threads()
        with self.open(engine, path, threads=2) as session:
            assert session.settled["mode"] == "eager"
            assert session.settled["threads"] == 2
            assert session.settled["float32_products"] == "ieee"
            assert session.device_peak_bytes() is None
            session.prepare(0, self.feeds(2))
            layers, times = session.executed(), session.profile()
        torch.set_num_threads(threads)
        assert [layer.op for layer in layers[:2]] == ["Conv", "Relu"]
        assert layers[0].bytes == 2 * 12 * 8 * 8 * 4
        assert [time.name for time in times] == ["inputs", *(layer.name for layer in layers), "outputs"]
        assert [time.role for time in times] == ["reorder", *["compute"] * len(layers), "reorder"]

    def test_each_call_has_its_sessions_threads(self, engine: Engine, path: Path) -> None:
        before = torch.get_num_threads()
        with self.open(engine, path, threads=2) as session:
            torch.set_num_threads(1)
            session.infer(self.feeds(2))
            assert torch.get_num_threads() == 2
        torch.set_num_threads(before)

    @pytest.mark.parametrize("precision", ["fp16", "bf16"])
    def test_halves_are_near(self, engine: Engine, path: Path, precision: Any) -> None:
        reason = engine.precisions("cpu", {})[precision]
        if reason is not None:
            pytest.skip(reason)
        with self.open(engine, path) as session:
            exact = session.infer(self.feeds(2))["logits"]
        with engine.load(path, "cpu", precision, 2, {"threads": 1}) as session:
            found = session.infer(self.feeds(2))["logits"]
            assert {layer.precision for layer in session.executed()} == {precision}
        assert found.dtype == np.float32
        error = np.abs(found - exact).max() / np.abs(exact).max()
        assert 1e-6 < error < (0.01 if precision == "fp16" else 0.05)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"mode": "auto"}, "mode: 'auto' is not known; known are compile, eager"),
            ({"copies": "include"}, "copies: 'include' is not known; did you mean 'included'"),
            ({"threads": 0}, "threads: wants a whole number from 1 to 4096: 0"),
            ({"in_flight": "many"}, "in_flight: wants a whole number from 1 to 4096: 'many'"),
        ],
    )
    def test_wrong_options_are_refused(
        self, engine: Engine, path: Path, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(EngineError, match=message):
            self.open(engine, path, **options)

    def test_a_size_beside_the_batch_must_be_given(self, engine: Engine, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { y = Relu(x) }"""
        onnx.save(parser.parse_model(text), tmp_path / "open.onnx")
        with pytest.raises(Unsupported, match=r"open\.onnx: input 'x' leaves a size beside the batch open"):
            self.open(engine, tmp_path / "open.onnx")

    @pytest.mark.slow
    def test_compiled_code_gives_the_same(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path) as session:
            exact = session.infer(self.feeds(2))["logits"]
        for _ in range(2):
            with self.open(engine, path, mode="compile") as session:
                assert session.settled["mode"] == "compile"
                assert session.compile_s
                found = session.infer(self.feeds(2))["logits"]
                assert session.profile() == ()
            np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["resnet50", "googlenet", "alexnet"])
    def test_built_in_networks_agree_with_onnxruntime(self, name: str, tmp_path: Path) -> None:
        networks.export(name, tmp_path / "network.onnx")
        same_as_onnxruntime(tmp_path / "network.onnx", 1, 1e-4)

    def test_a_trained_network_agrees_with_onnxruntime(self, test_data: Path) -> None:
        same_as_onnxruntime(test_data / "models" / "efficientnet_lite0.onnx", 2, 1e-4)

    @pytest.mark.parametrize("dynamo", [False, True])
    def test_what_pytorch_exports_comes_back(self, dynamo: bool, tmp_path: Path) -> None:
        """The round trip through both exporters of PyTorch."""
        pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), torch.nn.BatchNorm2d(8),
            torch.nn.Hardswish(), torch.nn.ZeroPad2d((0, 1, 0, 1)),
            torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.SiLU(), torch.nn.AvgPool2d(2, ceil_mode=True),
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5), torch.nn.Softmax(1),
        ).eval()  # fmt: skip
        images = torch.randn(2, 3, 18, 18)
        path = tmp_path / "exported.onnx"
        with warnings_ignored():
            if dynamo:
                torch.onnx.export(net, (images,), path, dynamo=True, verbose=False)
            else:
                torch.onnx.export(net, (images,), path, dynamo=False)
        with registry.engine("torch").load(path, "cpu", "fp32", 2, {"threads": 1}) as session:
            (found,) = session.infer({session.inputs[0].name: images.numpy()}).values()
        with torch.inference_mode():
            np.testing.assert_allclose(found, net(images).numpy(), rtol=1e-5, atol=1e-6)


def warnings_ignored() -> Any:
    """Exporters warn of their own future."""
    import warnings

    return warnings.catch_warnings(action="ignore")
