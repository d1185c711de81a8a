"""What every engine must do: subclass ``EngineContract`` and name the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import onnx
import psutil
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from inferometer import registry
from inferometer.contracts import Engine, Feeds, Session
from inferometer.errors import EngineError, InferometerError, ModelError, Unsupported
from inferometer.records import Precision

CLASSIFIER = """
<ir_version: 8, opset_import: ["" : 17]>
mini (float[N, 3, 16, 16] input) => (float[N, 5] logits)
{
  c1 = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(input, w1, b1)
  r1 = Relu(c1)
  c2 = Conv<group = 12, pads = [1, 1, 1, 1]>(r1, w2, b2)
  r2 = Relu(c2)
  c3 = Conv(r2, w3)
  s = Add(c3, r1)
  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(s)
  l = LRN<size = 3>(p)
  q = Concat<axis = 1>(p, l)
  g = GlobalAveragePool(q)
  f = Flatten(g)
  logits = Gemm(f, w4, b4)
}
"""
WEIGHTS = {
    "w1": (12, 3, 3, 3), "b1": (12,), "w2": (12, 1, 3, 3), "b2": (12,), "w3": (12, 12, 1, 1),
    "w4": (24, 5), "b4": (5,),
}  # fmt: skip

# Outputs times the length of each dot product, by hand: 8x8 after the stride. Twelve channels fill no
# block of 8 or 16, so an engine that pads them must not count what it pads.
CLASSIFIER_MACS = 8 * 8 * 12 * 27 + 8 * 8 * 12 * 9 + 8 * 8 * 12 * 12 + 24 * 5


def classifier(seed: int = 0) -> onnx.ModelProto:
    """The miniature classifier with seeded weights."""
    model = parser.parse_model(CLASSIFIER)
    generator = np.random.default_rng(seed)
    for name, shape in WEIGHTS.items():
        values = generator.standard_normal(shape).astype(np.float32) * np.float32(0.5)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


class LRN(OpRun):
    """ONNX's definition of LRN; the reference evaluator's own normalises only the first channels."""

    def _run(self, x: Any, alpha: float, beta: float, bias: float, size: int) -> tuple[Any]:
        squares = np.zeros_like(x)
        before, after = (size - 1) // 2, size // 2
        for channel in range(x.shape[1]):
            window = x[:, max(0, channel - before) : channel + after + 1]
            squares[:, channel] = (window**2).sum(axis=1)
        return (x / (bias + alpha / size * squares) ** beta,)


def in_float64(model: onnx.ModelProto, feeds: Feeds) -> npt.NDArray[np.float64]:
    """The model's first output, computed by ONNX's reference evaluator in float64."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for position, tensor in enumerate(model.graph.initializer):
        values = numpy_helper.to_array(tensor).astype(np.float64)
        wide.graph.initializer[position].CopyFrom(numpy_helper.from_array(values, tensor.name))
    for info in [*wide.graph.input, *wide.graph.output]:
        info.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    outputs = ReferenceEvaluator(wide, new_ops=[LRN]).run(
        None, {name: array.astype(np.float64) for name, array in feeds.items()}
    )
    return np.asarray(outputs[0], np.float64)


class EngineContract:
    """The tests; ``name`` and ``tolerance`` (relative to the largest logit) are the engine's."""

    name: ClassVar[str]
    tolerance: ClassVar[float] = 1e-5
    leak_bytes: ClassVar[int] = 8 * 1024**2

    @pytest.fixture
    def engine(self) -> Engine:
        return registry.engine(self.name)

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "mini.onnx"
        onnx.save(classifier(), path)
        return path

    def open(self, engine: Engine, path: Path, batch: int = 2, **options: Any) -> Session:
        return engine.load(path, engine.devices()[0].name, "fp32", batch, {"threads": 1, **options})

    def feeds(self, batch: int, seed: int = 1) -> dict[str, npt.NDArray[np.float32]]:
        return {"input": np.random.default_rng(seed).standard_normal((batch, 3, 16, 16)).astype(np.float32)}

    def test_it_says_what_it_is(self, engine: Engine) -> None:
        assert engine.name == self.name
        assert engine.version
        names = [device.name for device in engine.devices()]
        assert names
        assert len(set(names)) == len(names)

    def test_every_precision_is_supported_or_refused_with_a_reason(self, engine: Engine, path: Path) -> None:
        device = engine.devices()[0].name
        supported = engine.precisions(device, {})
        assert set(supported) == set(get_args(Precision))
        assert supported["fp32"] is None
        for precision, reason in supported.items():
            if reason is not None:
                with pytest.raises(Unsupported, match=precision):
                    engine.load(path, device, precision, 1, {})

    def test_inputs_and_outputs_have_the_batch_in_their_shape(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path, batch=3) as session:
            (given,), (result,) = session.inputs, session.outputs
            assert (given.name, given.shape, given.dtype) == ("input", (3, 3, 16, 16), "float32")
            assert (result.name, result.shape, result.dtype) == ("logits", (3, 5), "float32")
            assert session.infer(self.feeds(3))["logits"].shape == (3, 5)

    def test_outputs_agree_with_a_float64_reference(self, engine: Engine, path: Path) -> None:
        if not engine.computes:
            pytest.skip(f"{self.name} computes nothing")
        feeds = self.feeds(4)
        expected = in_float64(classifier(), feeds)
        with self.open(engine, path, batch=4) as session:
            found = session.infer(feeds)["logits"]
        assert np.abs(found - expected).max() <= self.tolerance * np.abs(expected).max()

    def test_an_image_does_not_depend_on_its_batch(self, engine: Engine, path: Path) -> None:
        feeds = self.feeds(4)
        with self.open(engine, path, batch=4) as session:
            together = session.infer(feeds)["logits"]
        with self.open(engine, path, batch=1) as session:
            alone = [session.infer({"input": feeds["input"][[row]]})["logits"][0] for row in range(4)]
        scale = max(float(np.abs(together).max()), 1.0)
        assert np.abs(together - np.stack(alone)).max() <= self.tolerance * scale

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"input": None}, "input 'input' is missing"),
            ({"extra": np.zeros(1, np.float32)}, "'extra' is not an input"),
            ({"input": np.zeros((1, 3, 16, 16), np.float32)}, r"wants shape \[2, 3, 16, 16\], got \[1, 3"),
            ({"input": np.zeros((2, 3, 16), np.float32)}, "wants shape"),
            ({"input": np.zeros((2, 3, 16, 16), np.float64)}, "wants float32, got float64"),
        ],
    )
    def test_wrong_feeds_are_refused(
        self, engine: Engine, path: Path, change: dict[str, Any], message: str
    ) -> None:
        feeds = {name: array for name, array in (self.feeds(2) | change).items() if array is not None}
        with self.open(engine, path) as session:
            with pytest.raises(EngineError, match=message):
                session.prepare(0, feeds)
            with pytest.raises(EngineError, match="slot"):
                session.prepare(session.in_flight, self.feeds(2))

    def test_slots_keep_their_own_results(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path) as session:
            for slot in range(session.in_flight):
                session.prepare(slot, self.feeds(2, seed=slot))
                session.submit(slot)
            for slot in range(session.in_flight):
                session.wait(slot)
            results = [session.results(slot)["logits"] for slot in range(session.in_flight)]
            expected = [
                session.infer(self.feeds(2, seed=slot))["logits"] for slot in range(session.in_flight)
            ]
        for found, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("asked", [1, 2])
    def test_there_are_no_more_slots_than_asked_for(self, engine: Engine, path: Path, asked: int) -> None:
        with self.open(engine, path, threads=2, in_flight=asked) as session:
            assert 1 <= session.in_flight <= asked

    def test_feeds_may_be_read_only_and_strided(self, engine: Engine, path: Path) -> None:
        wanted = self.feeds(2)
        read_only = {"input": wanted["input"].copy()}
        read_only["input"].flags.writeable = False
        strided = {"input": np.repeat(wanted["input"], 2, axis=3)[..., ::2]}
        with self.open(engine, path) as session:
            expected = session.infer(wanted)["logits"]
            for feeds in (read_only, strided):
                np.testing.assert_array_equal(session.infer(feeds)["logits"], expected)

    def test_results_outlive_later_calls_and_the_session(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path) as session:
            first = session.infer(self.feeds(2))["logits"]
            kept = first.copy()
            session.infer(self.feeds(2, seed=9))
            np.testing.assert_array_equal(first, kept)
        np.testing.assert_array_equal(first, kept)

    def test_what_ran_is_read_back(self, engine: Engine, path: Path) -> None:
        if not engine.computes:
            pytest.skip(f"{self.name} computes nothing")
        with self.open(engine, path, batch=2) as session:
            session.prepare(0, self.feeds(2))
            layers, times = session.executed(), session.profile()
        if layers:
            assert sum(layer.macs or 0 for layer in layers) == 2 * CLASSIFIER_MACS
            assert {layer.precision for layer in layers if layer.macs} == {"fp32"}
        assert all(layer.seconds >= 0 for layer in times)

    def test_inputs_of_every_kind_are_described_and_fed(self, engine: Engine, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 3] a, uint8[N, 3] b, int32[N, 3] c, int64[N, 3] d, bool[N, 3] e, float16[N, 3] h, float s,
           int64[3] limits, float[M, 2] idle) => (float[N, 3] sum, float[K, 3] odd) {
            bf = Cast<to = 1>(b)  cf = Cast<to = 1>(c)  df = Cast<to = 1>(d)  ef = Cast<to = 1>(e)
            hf = Cast<to = 1>(h)  lf = Cast<to = 1>(limits)
            sum = Sum(a, bf, cf, df, ef, hf, s, lf)  odd = Concat<axis = 0>(a, a)
        }"""
        model, path = parser.parse_model(text), tmp_path / "all:kinds.onnx"
        for info in (*model.graph.input, *model.graph.output):
            info.name = f"x/{info.name} größe:0"
        for node in model.graph.node:
            known = {name[2:-8]: name for name in (f"x/{n} größe:0" for n in "abcdehs")}
            known |= {name: f"x/{name} größe:0" for name in ("limits", "sum", "odd")}
            node.input[:] = [known.get(name, name) for name in node.input]
            node.output[:] = [known.get(name, name) for name in node.output]
        onnx.save(model, path)
        kinds = {
            "a": "float32", "b": "uint8", "c": "int32", "d": "int64", "e": "bool", "h": "float16",
            "s": "float32", "limits": "int64", "idle": "float32",
        }  # fmt: skip
        shapes = {"s": (), "limits": (3,), "idle": (2, 2)}
        with self.open(engine, path, batch=2) as session:
            found = [(tensor.name, tensor.shape, tensor.dtype) for tensor in session.inputs]
            assert found == [
                (f"x/{name} größe:0", shapes.get(name, (2, 3)), dtype) for name, dtype in kinds.items()
            ]
            feeds = {name: np.ones(shape, dtype) for name, shape, dtype in found}
            result = session.infer(feeds)
        assert list(result) == ["x/sum größe:0", "x/odd größe:0"]
        if engine.computes:
            np.testing.assert_array_equal(result["x/sum größe:0"], np.full((2, 3), 8, np.float32))
            assert result["x/odd größe:0"].shape == (4, 3)

    def test_the_batch_that_counts_is_that_of_the_first_input_with_two_axes(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[5] limits, float[2, 5] x, float[7, 5] other) => (float[2, 5] y, float[7, 5] z)
        { y = Add(x, limits)  z = Relu(other) }"""
        path = tmp_path / "fixed.onnx"
        onnx.save(parser.parse_model(text), path)
        with self.open(engine, path, batch=2) as session:
            assert [tensor.shape for tensor in session.inputs] == [(5,), (2, 5), (7, 5)]
        with pytest.raises(InferometerError, match="its batch is fixed at 2, asked for 7"):
            self.open(engine, path, batch=7)

    def test_broken_and_missing_files_are_model_errors(
        self, engine: Engine, path: Path, tmp_path: Path
    ) -> None:
        cut = tmp_path / "cut.onnx"
        cut.write_bytes(path.read_bytes()[:200])
        for broken in (tmp_path / "none.onnx", cut):
            with pytest.raises(ModelError, match=broken.name) as caught:
                self.open(engine, broken)
            assert "\n" not in str(caught.value)

    def test_unknown_options_and_devices_are_refused(self, engine: Engine, path: Path) -> None:
        with pytest.raises(EngineError, match="unknown option 'thread'; did you mean 'threads'"):
            self.open(engine, path, thread=2)
        with pytest.raises(InferometerError, match="there is no device 'abacus'"):
            engine.load(path, "abacus", "fp32", 1, {})

    def test_reopening_leaks_nothing(self, engine: Engine, path: Path) -> None:
        process = psutil.Process()

        def reopen(times: int) -> None:
            for _ in range(times):
                with self.open(engine, path, batch=8) as session:
                    session.infer(self.feeds(8))

        reopen(5)
        files, threads, resident = (
            len(list(Path("/proc/self/fd").iterdir())),
            process.num_threads(),
            process.memory_info().rss,
        )
        reopen(40)
        assert len(list(Path("/proc/self/fd").iterdir())) <= files
        assert process.num_threads() <= threads
        assert process.memory_info().rss - resident <= self.leak_bytes
