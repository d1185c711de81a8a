from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from inferometer import registry
from inferometer.engines import onnxruntime as plugin
from inferometer.errors import EngineError, InferometerError, ModelError, OutOfMemory, Unsupported
from tests.contract.engines import EngineContract
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
            (plugin.vendor.InvalidGraph("bad node"), ModelError),
            (plugin.vendor.InvalidProtobuf("bytes"), ModelError),
            (plugin.vendor.NoSuchFile("x"), ModelError),
            (plugin.vendor.NotImplemented("Foo(17)"), Unsupported),
            (plugin.vendor.Fail("Foo is not a registered function/op"), Unsupported),
            (
                plugin.vendor.RuntimeException("Failed to allocate memory for requested buffer of size 9"),
                OutOfMemory,
            ),
            (MemoryError(), OutOfMemory),
            (RuntimeError("std::bad_alloc"), OutOfMemory),
            (plugin.vendor.InvalidArgument("feed"), EngineError),
        ],
    )
    def test_every_vendor_error_is_mapped(
        self, vendor_error: Exception, ours: type[InferometerError]
    ) -> None:
        mapped = plugin._mapped(vendor_error, Path("m.onnx"))
        assert type(mapped) is ours
        assert str(mapped).startswith("m.onnx: ")

    def test_no_vendor_error_is_left_out(self) -> None:
        mapped = plugin._VENDOR_ERRORS
        names = [name for name in dir(plugin.vendor) if isinstance(getattr(plugin.vendor, name), type)]
        errors = [getattr(plugin.vendor, name) for name in names]
        left = [
            error.__name__
            for error in errors
            if issubclass(error, Exception) and not issubclass(error, mapped)
        ]
        assert left == []

    def test_weights_have_seven_bits_exactly_where_products_saturate(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, reasons = plugin.cpu_facts()
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
