import json
import os
import platform
import subprocess
import sys
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

pytest.importorskip("openvino", reason="the extra 'openvino' is not installed")

from inferometer import registry
from inferometer.contracts import Engine
from inferometer.data.synthetic import synthetic_feeds
from inferometer.engines import schemes
from inferometer.engines.openvino.network import compiled
from inferometer.engines.openvino.vendor import VENDOR_ERRORS, core, mapped, openvino, vendor
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import (
    EngineError,
    InferometerError,
    MissingExtra,
    ModelError,
    OutOfMemory,
    Unsupported,
)
from inferometer.models.inspection import describe
from inferometer.quantize.insert import insert_qdq
from inferometer.trials.speed import mac_share
from tests.contract.engines import EngineContract, classifier
from tests.unit.quantize.graphs import NETS, images, run, sqnr_db, table_of

HEAD = '<ir_version: 8, opset_import: ["" : 17]> '
_CI = ("CI", "TF_BUILD", "JENKINS_URL")  # set, they keep the vendor from reporting anything
ON_X86 = platform.machine() in ("x86_64", "AMD64")


def written(folder: Path, text: str | ModelProto, **weights: tuple[int, ...] | np.ndarray) -> Path:
    """A model from ONNX's text and weights, given whole or by their shape."""
    model = parser.parse_model(HEAD + text) if isinstance(text, str) else text
    generator = np.random.default_rng(0)
    for name, value in weights.items():
        values = value if isinstance(value, np.ndarray) else generator.standard_normal(value, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def in_a_process(code: str, home: Path, **environment: str) -> Any:
    """What a process of its own prints as JSON: the vendor's library reads its surroundings but once."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("CI", "TF_BUILD", "JENKINS_URL")
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**kept, "HOME": str(home), **environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestOpenVino(EngineContract):
    name = "openvino"

    def test_fp32_is_set_though_the_default_is_faster(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path) as session:
            assert session.raw.get_property("INFERENCE_PRECISION_HINT").get_type_name() == "f32"
            assert {layer.precision for layer in session.executed()} == {"fp32"}

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    def test_half_precisions_run_as_such_or_are_refused(
        self, engine: Engine, path: Path, precision: Any
    ) -> None:
        reason = engine.precisions("cpu", {})[precision]
        if reason is not None:
            pytest.skip(reason)
        with engine.load(path, "cpu", precision, 2, {"threads": 1}) as session:
            assert mac_share(session.executed()) == {precision: 1.0}
            rough = session.infer(self.feeds(2))["logits"]
        with self.open(engine, path) as session:
            exact = session.infer(self.feeds(2))["logits"]
        assert 0 < np.abs(rough - exact).max() < 0.05 * np.abs(exact).max()

    @pytest.mark.parametrize("net", NETS)
    def test_what_inferometer_quantized_runs_on_integers(
        self, engine: Engine, net: str, tmp_path: Path
    ) -> None:
        model = NETS[net]()
        quantized = insert_qdq(model, table_of(model), engine.qdq_scheme("cpu", {}))
        path = written(tmp_path, quantized)
        with engine.load(path, "cpu", "int8", 3, {"threads": 1}) as session:
            found = next(iter(session.infer({"input": images(3)}).values()))
            layers = session.executed()
        assert mac_share(layers)["int8"] > 0.9
        assert sum(layer.macs for layer in layers) == 3 * describe(path).macs
        # Where it rounds within fused layers is the engine's; what the file says it computes is not.
        assert sqnr_db(run(quantized, images(3), fuse=False), found) > 40

    def test_a_float_model_is_not_called_int8(self, engine: Engine, path: Path) -> None:
        with engine.load(path, "cpu", "int8", 2, {}) as session:
            assert mac_share(session.executed()) == {"fp32": 1.0}

    @pytest.mark.parametrize(
        ("text", "weights", "macs"),
        [
            ("g (float[N,8,16] x) => (float[N,6,16] y) { y=Conv<pads=[1,1],group=2>(x,w) }",
             {"w": (6, 4, 3)}, 6 * 16 * 4 * 3),
            ("g (float[N,8,6,6] x) => (float[N,12,12,12] y) { y=ConvTranspose<strides=[2,2],group=4>(x,w) }",
             {"w": (8, 3, 2, 2)}, 8 * 6 * 6 * 3 * 2 * 2),
            ("g (float[N,8,6,6] x) => (float[N,3,12,12] y) { y=ConvTranspose<strides=[2,2]>(x,w) }",
             {"w": (8, 3, 2, 2)}, 8 * 6 * 6 * 3 * 2 * 2),
            ("g (float[N,8] x) => (float[N,5] y) { y=Gemm<transB=1>(x,w,b) }",
             {"w": (5, 8), "b": (5,)}, 5 * 8),
            ("g (float[N,7,8] x) => (float[N,7,5] y) { y=MatMul(x,w) }", {"w": (8, 5)}, 7 * 5 * 8),
            ("g (float[N,7,8] x) => (float[N,8,8] y) { t=Transpose<perm=[0,2,1]>(x) y=MatMul(t,x) }",
             {}, 8 * 8 * 7),
            ("g (float[N,2,9,4] q, float[N,2,4,9] k, float[N,2,9,4] v) => (float[N,2,9,4] y)"
             "{ s=MatMul(q,k) p=Softmax<axis=-1>(s) y=MatMul(p,v) }", {}, 2 * 2 * 9 * 9 * 4),
            ("g (float[N,8] x) => (float[N,8] y) { y=Relu(x) }", {}, 0),
        ],
    )  # fmt: skip
    def test_macs_are_counted(
        self, engine: Engine, text: str, weights: dict[str, Any], macs: int, tmp_path: Path
    ) -> None:
        with self.open(engine, written(tmp_path, text, **weights), batch=3) as session:
            layers = session.executed()
        assert [layer.macs for layer in layers if layer.macs is None] == []
        assert sum(layer.macs for layer in layers) == 3 * macs

    @pytest.mark.parametrize(
        ("text", "weights"),
        [
            ('g (float[N,7,8] x) => (float[N,7,5] y) { y=Einsum<equation="nij,jk->nik">(x,w) }',
             {"w": (8, 5)}),
            ("g (float[N,3,H,W] x) => (float[N,4,H,W] y) { y=Conv(x,w) }", {"w": (4, 3, 1, 1)}),
        ],
    )  # fmt: skip
    def test_macs_that_cannot_be_told_are_none(
        self, engine: Engine, text: str, weights: dict[str, Any], tmp_path: Path
    ) -> None:
        with self.open(engine, written(tmp_path, text, **weights)) as session:
            assert {layer.macs for layer in session.executed()} == {None}

    def test_layers_say_what_they_write_and_how_long_they_take(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path, batch=2) as session:
            session.prepare(0, self.feeds(2))
            layers = {layer.name: layer for layer in session.executed()}
            times = session.profile()
        first = next(layer for name, layer in layers.items() if name.startswith("c1"))
        assert (first.op, first.bytes) == ("Convolution", 2 * 12 * 8 * 8 * 4)
        assert first.macs == 2 * 8 * 8 * 12 * 27
        timed = {time.name for time in times}
        assert first.name in timed
        assert timed <= set(layers) | {"input", "logits/sink_port_0"}

    @pytest.mark.parametrize("net", ["alexnet", "googlenet", "mobilenet"])
    def test_times_say_what_a_layer_is_for(self, engine: Engine, net: str, tmp_path: Path) -> None:
        model = NETS[net]()
        path = written(tmp_path, insert_qdq(model, table_of(model), engine.qdq_scheme("cpu", {})))
        with engine.load(path, "cpu", "int8", 3, {"threads": 1}) as session:
            session.prepare(0, {"input": images(3)})
            layers, times = session.executed(), session.profile()
        ran = {layer.name: layer for layer in layers}
        assert {(time.name, time.op) for time in times} <= {(layer.name, layer.op) for layer in layers}
        found = {time.name: time.role for time in times}
        quantizing = {name for name in found if name.endswith("zeLinear")}
        moving = {name for name in found if ran[name].op == "Reorder"}
        assert {name for name, role in found.items() if role == "quantize"} == quantizing != set()
        assert {name for name, role in found.items() if role == "reorder"} == moving != set()
        assert {found[name] for name, layer in ran.items() if layer.macs and name in found} == {"compute"}

    def test_a_transpose_of_the_model_is_its_own_work(self, engine: Engine, tmp_path: Path) -> None:
        text = (
            "g (float[N,256,192] x) => (float[N,192,256] y)"
            "{ t=Transpose<perm=[0,2,1]>(x) y=Softmax<axis=-1>(t) }"
        )
        with self.open(engine, written(tmp_path, text)) as session:
            session.prepare(0, {"x": np.ones((2, 256, 192), np.float32)})
            found = {time.op: time.role for time in session.profile()}
        assert found == {"Transpose": "compute", "Softmax": "compute"}

    def test_float_layers_at_int8_run_in_what_was_asked_for(self, engine: Engine, tmp_path: Path) -> None:
        model = NETS["googlenet"]()
        path = written(tmp_path, insert_qdq(model, table_of(model), engine.qdq_scheme("cpu", {})))
        refused = engine.precisions("cpu", {"float": "bf16"})["int8"]
        if refused is not None:
            with pytest.raises(Unsupported, match="float: bf16"):
                engine.load(path, "cpu", "int8", 2, {"float": "bf16"})
            pytest.skip(refused)
        for asked, ran in (("f32", "fp32"), ("bf16", "bf16")):
            with engine.load(path, "cpu", "int8", 2, {"float": asked, "threads": 1}) as session:
                layers = session.executed()
            assert session.settled["inference_precision"] == asked
            assert mac_share(layers) == {"int8": 1.0}
            assert {layer.precision for layer in layers if layer.op == "Lrn"} == {ran}
            (scaled,) = [layer for layer in layers if layer.name == "pool1_dequantized_DequantizeLinear"]
            assert scaled.precision == ran

    def test_what_it_settled_on_is_what_the_compiled_model_says(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path, hint="latency") as session:
            assert session.settled == json.loads(json.dumps(session.settled))
            assert session.settled["execution_devices"] == ["CPU"]
            assert session.settled["inference_precision"] == "f32"
            assert session.settled["performance_hint"] == "LATENCY"
            assert session.settled["threads"] == session.raw.get_property("INFERENCE_NUM_THREADS") == 1
            assert session.settled["streams"] == session.raw.get_property("NUM_STREAMS") == 1
            assert session.settled["requests"] == 1
            assert type(session.settled["cpu_pinning"]) is type(session.settled["hyper_threading"]) is bool
            assert session.compile_s is not None
            assert session.compile_s > 0
            assert session.raw.get_property("EXECUTION_DEVICES") == ["CPU"]
        assert core().get_property("CACHE_DIR") == ""

    @pytest.mark.skipif(usable_cores() < 2, reason="one core: no two streams")
    @pytest.mark.parametrize("streams", [1, 2])
    def test_streams_are_as_many_as_asked_for(self, engine: Engine, path: Path, streams: int) -> None:
        with self.open(engine, path, threads=2, streams=streams) as session:
            assert session.settled["streams"] == streams
            assert session.in_flight == session.settled["requests"] >= streams

    def test_one_request_alone_has_all_threads_whatever_the_streams(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path, threads=usable_cores(), streams=2, in_flight=1) as session:
            assert (session.settled["streams"], session.in_flight) == (1, 1)

    @pytest.mark.parametrize("copies", ["included", "excluded"])
    def test_copies_may_be_named_though_there_are_none(self, engine: Engine, path: Path, copies: str) -> None:
        with self.open(engine, path) as session:
            usual = session.settled
        with self.open(engine, path, copies=copies) as session:
            assert session.settled == usual

    def test_the_cpu_is_called_what_openvino_calls_it(self, engine: Engine) -> None:
        first = engine.devices()[0]
        assert (first.name, first.uuid) == ("cpu", None)
        assert first.description == core().get_property("CPU", "FULL_DEVICE_NAME").strip()
        with pytest.raises(Unsupported, match="there is no device 'CPU'"):
            engine.precisions("CPU", {})

    def test_other_devices_products_do_not_saturate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        facts, reasons = schemes.cpu_facts()
        old = facts.model_copy(update={"architecture": "x86_64", "int8_dot": False})
        monkeypatch.setattr(schemes, "cpu_facts", lambda: (old, reasons))
        forms = [registry.engine("openvino").qdq_scheme(device, {}) for device in ("cpu", "gpu:1", "npu")]
        named = [(form.name, form.weight_bits) for form in forms if form is not None]
        assert named == [("openvino-cpu", 7), ("openvino-gpu", 8), ("openvino-npu", 8)]

    def test_a_trained_model_gives_the_logits_that_onnxruntime_gives(
        self, engine: Engine, test_data: Path
    ) -> None:
        onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
        path = test_data / "models" / "efficientnet_lite0.onnx"
        other = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        with engine.load(path, "cpu", "fp32", 2, {}) as session:
            feeds = synthetic_feeds(session.inputs, seed=0)
            (found,) = session.infer(feeds).values()
        (expected,) = other.run(None, feeds)
        assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
        np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))

    @pytest.mark.skipif(usable_cores() < 2, reason="one core: nothing to share between requests")
    def test_a_throughput_session_keeps_several_requests_apart(self, engine: Engine, path: Path) -> None:
        with self.open(engine, path, threads=2) as session:
            assert session.raw.get_property("PERFORMANCE_HINT") == "THROUGHPUT"
            assert session.in_flight == session.raw.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS") > 1
            for slot in range(session.in_flight):
                session.prepare(slot, self.feeds(2, seed=slot))
                session.submit(slot)
            for slot in range(session.in_flight):
                session.wait(slot)
            together = [session.results(slot)["logits"] for slot in range(session.in_flight)]
            alone = [session.infer(self.feeds(2, seed=slot))["logits"] for slot in range(session.in_flight)]
        assert np.abs(together[0] - together[1]).max() > 0.1
        np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize(
        "options", [{"in_flight": 1}, {"hint": "latency"}, {"hint": "latency", "in_flight": 4}]
    )
    def test_latency_means_one_request_on_all_threads(
        self, engine: Engine, path: Path, options: dict[str, Any]
    ) -> None:
        with self.open(engine, path, threads=usable_cores(), **options) as session:
            assert session.in_flight == 1
            assert session.raw.get_property("PERFORMANCE_HINT") == "LATENCY"
            assert session.raw.get_property("NUM_STREAMS") == 1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"hint": "thruput"}, "hint: 'thruput' is not known; did you mean 'throughput'"),
            ({"threads": 0}, "threads: wants a whole number from 1 to 4096: 0"),
            ({"in_flight": "many"}, "in_flight: wants a whole number from 1 to 4096: 'many'"),
        ],
    )
    def test_wrong_options_are_refused(
        self, engine: Engine, path: Path, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(EngineError, match=message):
            self.open(engine, path, **options)

    def test_inputs_and_outputs_keep_the_names_of_the_file(self, engine: Engine, tmp_path: Path) -> None:
        text = (
            "g (float[N,3] x, float s) => (float[N,3] y, float[N,3] z, float[N,3] w)"
            "{ y=Mul(x,s) z=Identity(y) w=Identity(x) }"
        )
        feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "s": np.array(2, np.float32)}
        with self.open(engine, written(tmp_path, text)) as session:
            assert [tensor.name for tensor in session.inputs] == ["x", "s"]
            assert [tensor.name for tensor in session.outputs] == ["y", "z", "w"]
            found = session.infer(feeds)
        for name, expected in {"y": feeds["x"] * 2, "z": feeds["x"] * 2, "w": feeds["x"]}.items():
            np.testing.assert_array_equal(found[name], expected)

    def test_a_fixed_batch_is_kept(self, engine: Engine, path: Path, tmp_path: Path) -> None:
        model = onnx.load(path)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
        with pytest.raises(Unsupported, match=r"model\.onnx: its batch is fixed at 1, asked for 2"):
            self.open(engine, written(tmp_path, model), batch=2)

    @pytest.mark.parametrize("kind", ["BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "UINT32"])
    def test_weights_that_the_reader_misreads_are_written_for_it_first(
        self, engine: Engine, tmp_path: Path, kind: str
    ) -> None:
        values = [1, 2, 4, 8, 16, 3]
        graph = helper.make_graph(
            [helper.make_node("Cast", ["w"], ["f"], to=1), helper.make_node("Mul", ["x", "f"], ["y"])], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 6])],
            [helper.make_tensor("w", getattr(TensorProto, kind), [6], values)],
        )  # fmt: skip
        assert not graph.initializer[0].raw_data
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        with self.open(engine, written(tmp_path, model), batch=1) as session:
            found = session.infer({"x": np.ones((1, 6), np.float32)})["y"]
        np.testing.assert_array_equal(found, np.array([values], np.float32))

    @pytest.mark.parametrize("opset", [9, 11, 12, 13])
    @pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
    def test_softmax_means_what_the_files_opset_says(
        self, engine: Engine, tmp_path: Path, op: str, opset: int
    ) -> None:
        text = f'<ir_version: 7, opset_import: ["" : {opset}]> g (float[N,2,3] x) => (float[N,2,3] y)'
        model = parser.parse_model(text + f"{{ y = {op}<axis = 1>(x) }}")
        x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
        powers = np.exp(x)
        wanted = powers / powers.sum(axis=1 if opset >= 13 else (1, 2), keepdims=True)
        with self.open(engine, written(tmp_path, model), batch=4) as session:
            found = session.infer({"x": x})["y"]
        np.testing.assert_allclose(
            found, np.log(wanted) if op == "LogSoftmax" else wanted, rtol=1e-4, atol=1e-5
        )

    def test_an_unknown_operator_is_unsupported(self, engine: Engine, tmp_path: Path) -> None:
        shape = [TensorProto.FLOAT, ["N", 3]]
        graph = helper.make_graph(
            [helper.make_node("Frobnicate", ["input"], ["logits"])], "g",
            [helper.make_tensor_value_info("input", *shape)],
            [helper.make_tensor_value_info("logits", *shape)],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = tmp_path / "odd.onnx"
        path.write_bytes(model.SerializeToString())
        with pytest.raises(Unsupported, match=r"odd\.onnx: .*Frobnicate"):
            self.open(engine, path)

    def test_a_graph_that_cannot_be_is_a_model_error(self, engine: Engine, tmp_path: Path) -> None:
        text = "g (float[N,3,8,8] x) => (float[N,4,8,8] y) { y=Conv(x,w) }"
        with pytest.raises(ModelError, match=r"model\.onnx: .*does not match filter input channel"):
            self.open(engine, written(tmp_path, text, w=(4, 5, 1, 1)))
        empty = tmp_path / "empty.onnx"
        empty.touch()
        with pytest.raises(ModelError, match=r"empty\.onnx: openvino finds no output in it"):
            self.open(engine, empty)

    def test_another_arithmetic_than_asked_for_is_refused(self, path: Path) -> None:
        class Settled:
            """A compiled model whose arithmetic is not what it was told."""

            def get_property(self, name: str) -> Any:
                return openvino.Type.bf16

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core(), "compile_model", lambda *_: Settled())
            with pytest.raises(Unsupported, match=r"mini\.onnx: openvino would run bf16, not f16"):
                compiled(None, "CPU", {"INFERENCE_PRECISION_HINT": "f16"}, path)

    @pytest.mark.parametrize(
        ("vendor_error", "reading", "ours"),
        [
            (vendor.GeneralFailure("Model can't be parsed"), True, ModelError),
            (RuntimeError("Input tensor isn't found for node 'x'"), True, ModelError),
            (vendor.OpConversionFailure("No conversion rule found for Foo-17"), True, Unsupported),
            (vendor.NotImplementedFailure("Foo"), True, Unsupported),
            (RuntimeError("could not create a primitive descriptor for the lrn"), False, Unsupported),
            (RuntimeError("Failed to allocate 83492864 bytes of memory"), False, OutOfMemory),
            (RuntimeError("can't alloc"), False, OutOfMemory),
            (RuntimeError("std::bad_alloc"), True, OutOfMemory),
            (MemoryError(), False, OutOfMemory),
            (RuntimeError("Infer Request is busy"), False, EngineError),
        ],
    )  # fmt: skip
    def test_every_vendor_error_is_mapped(
        self, vendor_error: Exception, reading: bool, ours: type[InferometerError]
    ) -> None:
        found = mapped(vendor_error, Path("m.onnx"), reading=reading)
        assert type(found) is ours
        assert str(found).startswith("m.onnx: ")

    def test_messages_leave_out_where_in_the_vendors_source(self) -> None:
        text = (
            "Exception from src/inference/src/cpp/core.cpp:84:\nCheck 'a ==\n b' failed at src/a.hpp:307:\n"
            "FrontEnd API failed with GeneralFailure:\nno\n such thing\n"
        )
        assert str(mapped(RuntimeError(text), Path("m"))) == "m: openvino failed: no such thing"

    def test_no_vendor_error_is_left_out(self) -> None:
        kinds = [kind for kind in vars(vendor).values() if isinstance(kind, type)]
        errors = [kind for kind in kinds if issubclass(kind, Exception)]
        assert len(errors) >= 5
        assert [kind.__name__ for kind in errors if not issubclass(kind, VENDOR_ERRORS)] == []

    def test_memory_that_ends_while_reading_is_out_of_memory(self, tmp_path: Path) -> None:
        # 64 MiB of weights under a bound that holds them once: the vendor's reader would crash.
        names = ["x", *(f"a{step}" for step in range(15)), "y"]
        steps = " ".join(f"{after}=MatMul({before},w{after})" for before, after in pairwise(names))
        path = written(
            tmp_path, f"g (float[N,1024] x) => (float[N,1024] y) {{ {steps} }}",
            **{f"w{name}": (1024, 1024) for name in names[1:]},
        )  # fmt: skip
        onnx.save(classifier(), tmp_path / "small.onnx")
        code = f"""
            import json, psutil, resource
            from pathlib import Path
            from inferometer.engines.openvino.engine import OpenVinoEngine
            from inferometer.errors import OutOfMemory

            engine = OpenVinoEngine()
            small = Path({str(tmp_path)!r}) / "small.onnx"
            engine.load(small, "cpu", "fp32", 1, {{"threads": 1}}).close()
            taken = psutil.Process().memory_full_info().data
            resource.setrlimit(resource.RLIMIT_DATA, (taken + 100 * 2**20, resource.RLIM_INFINITY))
            try:
                engine.load(Path({str(path)!r}), "cpu", "fp32", 1, {{"threads": 1}})
            except OutOfMemory as error:
                print(json.dumps(str(error)))
        """
        assert "out of memory" in in_a_process(code, tmp_path)

    def test_nothing_is_reported_to_the_vendor(self, path: Path, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        code = f"""
            import json, sys
            from pathlib import Path

            seen = []
            watched = ("socket.", "urllib.", "http.", "os.fork", "os.posix_spawn", "subprocess.")
            sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(watched) else None)
            from inferometer.engines.openvino.engine import OpenVinoEngine

            with OpenVinoEngine().load(Path({str(path)!r}), "cpu", "fp32", 1, {{"threads": 1}}) as session:
                session.executed()
            print(json.dumps([seen, [name for name in sys.modules if name.startswith("openvino_telemetry")]]))
        """
        assert in_a_process(code, home) == [[], []]
        assert list(home.iterdir()) == []

    @pytest.mark.skipif(
        "avx512bw" not in (cpu_facts()[0].features or ()),
        reason="OpenVINO falls back to bf16 on AVX-512 alone",
    )
    def test_fp16_is_refused_where_bf16_would_run_instead(self, path: Path, tmp_path: Path) -> None:
        code = f"""
            import json
            from pathlib import Path
            from inferometer.engines.openvino.engine import OpenVinoEngine
            from inferometer.engines.openvino.network import compiled, network
            from inferometer.errors import Unsupported

            try:
                graph = network(Path({str(path)!r}), 1)
                compiled(graph, "CPU", {{"INFERENCE_PRECISION_HINT": "f16"}}, Path("m"))
                told = "it ran"
            except Unsupported as error:
                told = str(error)
            print(json.dumps([OpenVinoEngine().precisions("cpu", {{}})["fp16"], told]))
        """  # fmt: skip
        reason, told = in_a_process(code, tmp_path, ONEDNN_MAX_CPU_ISA="AVX512_CORE")
        assert reason.startswith("OpenVINO lists no fp16 for this CPU")
        assert told == "m: openvino would run bf16, not f16"

    @pytest.mark.skipif(not ON_X86, reason="the variable chooses among the instruction sets of x86")
    def test_seven_bit_weights_are_exact_without_vnni_and_eight_are_not(self, tmp_path: Path) -> None:
        text = (
            "g (float[N,64,4,4] x) => (float[N,32,4,4] y) { q=QuantizeLinear(x,s,z) d=DequantizeLinear(q,s,z)"
            "w=DequantizeLinear<axis=0>(i,t,n) y=Conv(d,w) }"
        )
        constants = {
            "s": np.ones((), np.float32), "z": np.zeros((), np.uint8),
            "t": np.ones(32, np.float32), "n": np.zeros(32, np.int8),
        }  # fmt: skip
        sums = {}
        for weight in (63, 127):
            path = written(tmp_path, text, i=np.full((32, 64, 1, 1), weight, np.int8), **constants)
            code = f"""
                import json, numpy
                from pathlib import Path
                from inferometer.engines.openvino.engine import OpenVinoEngine
                model = Path({str(path)!r})
                with OpenVinoEngine().load(model, "cpu", "int8", 1, {{"threads": 1}}) as session:
                    found = session.infer({{"x": numpy.full((1, 64, 4, 4), 255, numpy.float32)}})["y"]
                print(json.dumps([float(found.min()), float(found.max())]))
            """
            sums[weight] = in_a_process(code, tmp_path, ONEDNN_MAX_CPU_ISA="AVX2")
        assert sums[63] == [64 * 255 * 63] * 2
        assert sums[127] == [32 * 32767] * 2

    def test_weights_have_seven_bits_exactly_where_products_saturate(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, reasons = schemes.cpu_facts()
        for architecture, dot, bits in [("x86_64", True, 8), ("x86_64", False, 7), ("aarch64", False, 8)]:
            facts = real.model_copy(update={"architecture": architecture, "int8_dot": dot})
            monkeypatch.setattr(schemes, "cpu_facts", lambda facts=facts: (facts, reasons))
            scheme = engine.qdq_scheme("cpu", {})
            assert scheme.weight_bits == bits
            assert (scheme.reason is not None) == (bits == 7)

    def test_the_extra_that_brings_openvino_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openvino", None)
        for name in [name for name in sys.modules if name.startswith("inferometer.engines.openvino")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(
            MissingExtra, match=r"needs the package 'openvino': pip install 'inferometer\[openvino\]'"
        ):
            registry.engine("openvino")
