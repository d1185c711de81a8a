from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from inferometer import registry
from inferometer.engines.onnxruntime import engine as plugin
from inferometer.engines.onnxruntime.errors import VENDOR_ERRORS, mapped, vendor
from inferometer.errors import EngineError, InferometerError, ModelError, OutOfMemory, Unsupported
from tests.contract.engines import EngineContract
from tests.contract.qdq import with_qdq
from tests.corpus import inputs, outputs
from tests.corpus.building import CASES

assert {inputs, outputs}  # which register their models


class TestOnnxRuntime(EngineContract):
    name = "onnxruntime"

    def test_an_unknown_operator_is_unsupported(self, tmp_path: Path) -> None:
        node = helper.make_node("Frobnicate", ["input"], ["logits"], domain="")
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 3])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / "odd.onnx"
        path.write_bytes(model.SerializeToString())
        with pytest.raises(Unsupported, match="Frobnicate"):
            self.open(registry.engine("onnxruntime"), path)

    def test_a_fixed_batch_is_kept(self, path: Path, tmp_path: Path) -> None:
        model = onnx.load(path)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
        fixed = tmp_path / "fixed.onnx"
        onnx.save(model, fixed)
        with pytest.raises(Unsupported, match="its batch is fixed at 1, asked for 2"):
            self.open(registry.engine("onnxruntime"), fixed, batch=2)

    @pytest.mark.parametrize(
        ("vendor_error", "ours"),
        [
            (vendor.InvalidGraph("bad node"), ModelError),
            (vendor.InvalidProtobuf("bytes"), ModelError),
            (vendor.NoSuchFile("x"), ModelError),
            (vendor.NotImplemented("Foo(17)"), Unsupported),
            (vendor.Fail("Foo is not a registered function/op"), Unsupported),
            (
                vendor.RuntimeException("Failed to allocate memory for requested buffer of size 9"),
                OutOfMemory,
            ),
            (MemoryError(), OutOfMemory),
            (RuntimeError("std::bad_alloc"), OutOfMemory),
            (vendor.InvalidArgument("feed"), EngineError),
        ],
    )
    def test_every_vendor_error_is_mapped(
        self, vendor_error: Exception, ours: type[InferometerError]
    ) -> None:
        found = mapped(vendor_error, Path("m.onnx"))
        assert type(found) is ours
        assert str(found).startswith("m.onnx: ")

    def test_no_vendor_error_is_left_out(self) -> None:
        names = [name for name in dir(vendor) if isinstance(getattr(vendor, name), type)]
        errors = [getattr(vendor, name) for name in names]
        left = [
            error.__name__
            for error in errors
            if issubclass(error, Exception) and not issubclass(error, VENDOR_ERRORS)
        ]
        assert left == []

    def test_weights_have_seven_bits_exactly_where_products_saturate(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, reasons = plugin.schemes.cpu_facts()
        engine = plugin.OnnxRuntimeEngine()
        for architecture, dot, bits in [("x86_64", True, 8), ("x86_64", False, 7), ("aarch64", False, 8)]:
            facts = real.model_copy(update={"architecture": architecture, "int8_dot": dot})
            monkeypatch.setattr(plugin.schemes, "cpu_facts", lambda facts=facts: (facts, reasons))
            scheme = engine.qdq_scheme("cpu", {})
            assert scheme.weight_bits == bits
            assert (scheme.reason is not None) == (bits == 7)

    def test_slots_may_be_driven_from_threads_at_once(self, path: Path) -> None:
        engine = registry.engine("onnxruntime")
        feeds = [self.feeds(2, seed=number) for number in range(24)]
        with self.open(engine, path) as session:
            expected = [session.infer(one)["logits"] for one in feeds]
        with self.open(engine, path, threads=4, in_flight=4) as session:
            assert session.in_flight == 4

            def drive(slot: int) -> list[float]:
                worst = []
                for number in range(slot, 24, 4):
                    session.prepare(slot, feeds[number])
                    session.submit(slot)
                    session.wait(slot)
                    worst.append(float(np.abs(session.view(slot)["logits"] - expected[number]).max()))
                return worst

            with ThreadPoolExecutor(4) as pool:
                assert max(max(one) for one in pool.map(drive, range(4))) < 1e-5

    def test_a_view_is_overwritten_and_results_are_not(self, path: Path) -> None:
        with self.open(registry.engine("onnxruntime"), path) as session:
            session.infer(self.feeds(2, seed=1))  # from the second call on outputs have their place
            session.infer(self.feeds(2, seed=2))
            view, results = session.view(0)["logits"], session.results(0)["logits"]
            before = results.copy()
            session.infer(self.feeds(2, seed=3))
            np.testing.assert_array_equal(results, before)
            np.testing.assert_array_equal(view, session.results(0)["logits"])
            assert np.abs(view - before).max() > 0

    def test_outputs_whose_shape_depends_on_the_values(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 4] input) => (float[N, 4] doubled, int64[2, M] places)
        { doubled = Add(input, input)  places = NonZero(input) }"""
        path = tmp_path / "places.onnx"
        onnx.save(parser.parse_model(text), path)
        with self.open(registry.engine("onnxruntime"), path) as session:
            for count in (1, 5, 3, 8):
                values = np.zeros((2, 4), np.float32)
                values.reshape(-1)[:count] = 1
                found = session.infer({"input": values})
                assert found["places"].shape == (2, count)
                np.testing.assert_array_equal(found["doubled"], 2 * values)

    def test_outputs_that_are_no_arrays_are_computed_and_left_out(self, tmp_path: Path) -> None:
        path = tmp_path / "maps.onnx"
        path.write_bytes(CASES["scores_as_maps"].build().SerializeToString())
        with self.open(registry.engine("onnxruntime"), path) as session:
            assert [tensor.name for tensor in session.outputs] == ["label"]
            assert session.skipped == {"maps": "it is no array of numbers but seq(map(string,tensor(float)))"}
            x = np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)
            for _ in range(3):
                found = session.infer({"x": x})
            assert set(found) == {"label"}
            assert "ZipMap" in {layer.op for layer in session.executed()}
            assert "ZipMap" in {layer.op for layer in session.profile()}

    def test_a_model_without_any_array_among_its_outputs_runs(self, tmp_path: Path) -> None:
        path = tmp_path / "names.onnx"
        path.write_bytes(CASES["nothing_but_names"].build().SerializeToString())
        with self.open(registry.engine("onnxruntime"), path) as session:
            assert session.outputs == ()
            assert session.infer({"x": np.ones((2, 3), np.float32)}) == {}
            assert "LabelEncoder" in {layer.op for layer in session.executed()}

    def test_an_unknown_rank_is_no_scalar(self, tmp_path: Path) -> None:
        unknown = CASES["not_even_the_rank_known"].build()
        path = tmp_path / "unknown.onnx"
        path.write_bytes(unknown.SerializeToString())
        with pytest.raises(Unsupported, match="input 'x' has no known rank: give its shape"):
            self.open(registry.engine("onnxruntime"), path)

    def test_activations_meet_weights_of_four_bits_unrounded_unless_int8_is_wanted(
        self, tmp_path: Path
    ) -> None:
        # With 32 inputs per scale, as the runtime's own kernel for such weights wants them.
        packed = helper.make_tensor("q", TensorProto.INT4, [64, 32], [k % 16 - 8 for k in range(64 * 32)])
        graph = helper.make_graph(
            [
                helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32),
                helper.make_node("MatMul", ["x", "w"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32])],
            [packed, onnx.numpy_helper.from_array(np.full((2, 32), 0.25, np.float32), "s")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        path = tmp_path / "four.onnx"
        onnx.save(model, path)
        x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
        weights = (np.arange(64 * 32) % 16 - 8).reshape(64, 32) * 0.25
        worst = {}
        for precision in ("fp32", "int8"):
            with registry.engine("onnxruntime").load(path, "cpu", precision, 3, {"threads": 1}) as session:
                worst[precision] = float(np.abs(session.infer({"x": x})["y"] - x @ weights).max())
        assert worst["fp32"] < 1e-4
        assert worst["int8"] > worst["fp32"]

    def test_the_session_says_what_it_settled_on(self, path: Path) -> None:
        with self.open(registry.engine("onnxruntime"), path, threads=4, in_flight=2) as session:
            settled = dict(session.settled)
        json.dumps(settled)  # plain values, for the record
        assert settled["provider"] == "CPUExecutionProvider"
        assert (settled["threads"], settled["intra_op_num_threads"]) == (4, 2)
        assert settled["graph_optimization_level"] == "ORT_ENABLE_ALL"
        assert "CPUExecutionProvider" in settled["available_providers"]
        assert settled["build"]
        if "nodes" in settled:  # from 1.24 on
            assert settled["nodes"] == {"CPUExecutionProvider": 12}
            assert settled["fallback"] == []

    def test_an_integer_model_is_counted_by_its_kernels(self, path: Path, tmp_path: Path) -> None:
        engine = registry.engine("onnxruntime")
        scheme = engine.qdq_scheme("cpu", {})
        assert scheme is not None
        quantized = with_qdq(path, tmp_path / "int8.onnx", scheme)
        with engine.load(quantized, "cpu", "int8", 2, {"threads": 1}) as session:
            session.prepare(0, self.feeds(2))
            layers, times = session.executed(), session.profile()
            settled = session.settled
        multiplying = [layer for layer in layers if layer.macs]
        integers = [layer for layer in multiplying if layer.precision == "int8"]
        assert integers
        assert settled["integer_kernels"] == len(integers)
        assert settled["float_kernels"] == len(multiplying) - len(integers)
        quantizing = {layer.name for layer in layers if layer.op in ("QuantizeLinear", "DequantizeLinear")}
        assert settled["quantize_nodes"] == len(quantizing) > 0
        assert {time.name for time in times if time.role == "quantize"} == quantizing

    @pytest.mark.parametrize("named", [False, True])
    def test_kernels_are_called_the_same_in_both_readings(
        self, path: Path, tmp_path: Path, named: bool
    ) -> None:
        # Where the runtime blocks channels, it calls a convolution after its result.
        model = onnx.load(path)
        for node in model.graph.node if named else ():
            node.name = f"the_{node.output[0]}"
        onnx.save(model, tmp_path / "names.onnx")
        with self.open(registry.engine("onnxruntime"), tmp_path / "names.onnx") as session:
            session.prepare(0, self.feeds(2))
            layers, times = session.executed(), session.profile()
        called = {layer.name for layer in layers}
        assert {time.name for time in times if time.role != "reorder"} <= called
        assert {layer.name for layer in layers if layer.macs} <= {time.name for time in times}

    def test_a_residual_sum_within_a_convolution_keeps_its_name(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 16, 8, 8] x) => (float[N, 16, 8, 8] y)
        { a = Conv<pads = [1, 1, 1, 1]>(x, w)  s = Add(a, x)  y = Relu(s) }"""
        model = parser.parse_model(text)
        weight = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
        for node in model.graph.node:
            node.name = f"the_{node.op_type}"
        onnx.save(model, tmp_path / "residual.onnx")
        with self.open(registry.engine("onnxruntime"), tmp_path / "residual.onnx") as session:
            session.prepare(0, {"x": np.ones((2, 16, 8, 8), np.float32)})
            (product,) = [layer for layer in session.executed() if layer.macs]
            assert product.name == "the_Conv"
            assert product.name in {time.name for time in session.profile()}

    def test_a_transpose_of_the_model_is_compute_and_a_reorder_is_not(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 3, 4] x) => (float[N, 4, 3] y) { h = Mul(x, x)  y = Transpose<perm = [0, 2, 1]>(h) }"""
        onnx.save(parser.parse_model(text), tmp_path / "t.onnx")
        with self.open(registry.engine("onnxruntime"), tmp_path / "t.onnx") as session:
            session.prepare(0, {"x": np.ones((2, 3, 4), np.float32)})
            roles = {time.op: time.role for time in session.profile()}
        assert roles == {"Mul": "compute", "Transpose": "compute"}

    def test_a_scalar_is_fed_as_one(self, tmp_path: Path) -> None:
        text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float s, float[N] x) => (int64[R] shape, float[N] y) { shape = Shape(s)  y = Mul(x, s) }"""
        onnx.save(parser.parse_model(text), tmp_path / "s.onnx")
        with self.open(registry.engine("onnxruntime"), tmp_path / "s.onnx") as session:
            found = session.infer({"s": np.array(3, np.float32), "x": np.ones(2, np.float32)})
        assert found["shape"].shape == (0,)
        np.testing.assert_array_equal(found["y"], [3, 3])

    def test_a_provider_that_the_device_has_not_got_is_refused(self, path: Path) -> None:
        with pytest.raises(EngineError, match="there is no device 'cuda:99'"):
            registry.engine("onnxruntime").load(path, "cuda:99", "fp32", 1, {})
