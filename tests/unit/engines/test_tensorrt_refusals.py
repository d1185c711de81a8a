"""TensorRT's engines on the tests' own TensorRT and CUDA: what they refuse."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from inferometer import registry
from inferometer.contracts import QdqScheme
from inferometer.engines.tensorrt.importing import importing
from inferometer.errors import EngineError, MissingExtra, ModelError, OutOfMemory, Unsupported
from tests.contract.engines import classifier
from tests.unit.engines.cuda_fakes import NO_DRIVER, FakeCuda
from tests.unit.engines.tensorrt_fakes import Context, Engine, Parser, Place, feeds


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class TestRefusals:
    def test_without_a_driver_there_is_no_device_and_the_reason_is_said(self, tmp_path: Path) -> None:
        place = Place(tmp_path)
        place.cuda.fails["cudaGetDeviceCount"] = (1, NO_DRIVER)
        reason = "CUDA finds no driver of NVIDIA's, or one that is too old for this library"
        assert place.engine.devices() == []
        assert set(place.engine.precisions("cuda:0", {}).values()) == {reason}
        (variant,) = place.engine.variants()
        assert (variant.options, variant.reason) == ({}, reason)
        with pytest.raises(Unsupported, match=r"there is no device 'cuda:0': CUDA finds no driver"):
            place.load()

    def test_gpus_are_described_and_uuids_spelled_as_nvml_does(self, tmp_path: Path) -> None:
        first, second = Place(tmp_path, FakeCuda(gpus=2)).engine.devices()
        assert (first.name, first.description) == ("cuda:0", "Imagined GPU")
        assert first.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
        assert second.name == "cuda:1"

    @pytest.mark.parametrize(
        ("capability", "refused"),
        [((7, 0), {"fp32", "tf32", "fp16", "bf16", "int8"}), ((7, 5), {"tf32", "bf16"}), ((8, 0), set())],
    )
    def test_precisions_follow_the_generation(
        self, tmp_path: Path, capability: tuple[int, int], refused: set[str]
    ) -> None:
        found = Place(tmp_path, FakeCuda(capability=capability)).engine.precisions("cuda:0", {})
        assert {precision for precision, reason in found.items() if reason} == refused

    def test_tf32_that_the_environment_turns_off_is_refused(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
        with pytest.raises(Unsupported, match="cannot run tf32: the variable NVIDIA_TF32_OVERRIDE=0"):
            place.load("tf32")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"optimization_level": 6}, "optimization_level: wants a whole number from 0 to 5: 6"),
            ({"threads": True}, "threads: wants a whole number from 1 to 4096: True"),
            ({"copies": "some"}, "copies: 'some' is not known"),
            ({"float": "fp8"}, "float: 'fp8' is not known; known are bf16, fp16, fp32"),
            ({"cuda_graph": "yes"}, "cuda_graph: wants true or false: 'yes'"),
            ({"cache": 3}, "cache: wants a folder, or none: 3"),
        ],
    )
    def test_wrong_options_are_refused(self, place: Place, options: dict[str, Any], message: str) -> None:
        with pytest.raises(EngineError, match=message):
            place.load(**options)

    def test_another_failure_is_an_engine_error_with_the_last_words(self, place: Place) -> None:
        place.vendor.fails["build"] = "something strange"
        with pytest.raises(EngineError) as caught:
            place.load()
        assert type(caught.value) is EngineError
        assert str(caught.value).endswith("could not build it: Internal Error (something else followed)")

    @pytest.mark.parametrize(
        ("refusal", "kind", "said"),
        [
            (("UNSUPPORTED_NODE_DATATYPE", "Foo", "n", "no"), Unsupported,
             "tensorrt does not support Foo in this form at node 'n': no"),
            (("UNSUPPORTED_GRAPH", "", "", "no"), Unsupported, "does not support the model in this form: no"),
            (("INVALID_NODE", "Foo", "n", "Plugin not found"), Unsupported,
             "tensorrt does not know the operator Foo at node 'n'"),
            (("INVALID_GRAPH", "Foo", "", "bad"), ModelError, "tensorrt cannot read it (Foo): bad"),
            (("MODEL_DESERIALIZE_FAILED", "", "", "bad"), ModelError, "cannot read it (the file): bad"),
            (("MEM_ALLOC_FAILED", "Foo", "n", "8 bytes"), OutOfMemory, "out of memory in tensorrt: 8 bytes"),
            (("INTERNAL_ERROR", "Foo", "n", "odd"), EngineError, "could not parse it at node 'n': odd"),
            (("", "", "", "cudaError 2: x"), OutOfMemory, "out of memory in tensorrt: cudaError 2: x"),
        ],
    )  # fmt: skip
    def test_what_the_parser_says_becomes_the_right_error(
        self, place: Place, refusal: tuple[str, str, str, str], kind: type[Exception], said: str
    ) -> None:
        place.vendor.refusal = refusal
        with pytest.raises(kind) as caught:
            place.load()
        assert type(caught.value) is kind
        assert str(caught.value).startswith(f"{place.model}: ")
        assert str(caught.value).endswith(said)

    @pytest.mark.parametrize(
        ("side", "change", "message"),
        [
            ("inputs", {"is_shape_tensor": True}, "input 'input' decides shapes"),
            ("outputs", {"shape": (-1, 5)}, "the shape of output 'logits' depends on values"),
        ],
    )
    def test_shapes_that_depend_on_values_are_refused(
        self, place: Place, side: str, change: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def parse(parser: Parser, content: bytes) -> bool:
            done = real(parser, content)
            vars(getattr(parser.network, side)[0]).update(change)
            return done

        real = Parser.parse
        monkeypatch.setattr(Parser, "parse", parse)
        with pytest.raises(Unsupported, match=message):
            place.load()

    @pytest.mark.parametrize(
        ("method", "result", "message"),
        [
            ("get_tensor_dtype", types.SimpleNamespace(name="FP8"), "tensor 'input' is FP8"),
            ("is_shape_inference_io", True, "tensor 'input' decides shapes"),
        ],
    )
    def test_tensors_of_an_engine_that_cannot_be_fed_are_refused(
        self, place: Place, method: str, result: Any, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Engine, method, lambda engine, name: result)
        with pytest.raises(Unsupported, match=message):
            place.load()
        assert place.held() == {}

    def test_buffers_that_a_context_does_not_take_are_an_error(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Context, "set_tensor_address", lambda context, name, at: False)
        with pytest.raises(EngineError, match="could not take the buffer of 'input': it gave no reason"):
            place.load()
        assert place.held() == {}

    def test_models_too_large_for_one_message_are_parsed_from_a_file(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with place.load() as session:
            wanted = session.infer(feeds())["logits"]
        monkeypatch.setattr("inferometer.engines.tensorrt.build.LARGEST_MESSAGE", 100)
        with place.load(cache="none") as session:
            np.testing.assert_array_equal(session.infer(feeds())["logits"], wanted)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("g (string[N,3] x) => (string[N,3] y) { y=Identity(x) }", "input 'x' is no array of numbers"),
            ("g (float x) => (float y) { y=Identity(x) }", "input 'x' has no known rank"),
        ],
    )
    def test_inputs_that_nothing_can_feed_are_refused(self, place: Place, text: str, message: str) -> None:
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
        if "rank" in message:
            model.graph.input[0].type.tensor_type.ClearField("shape")
        onnx.save(model, place.model)
        with pytest.raises(Unsupported, match=message):
            place.load()

    def test_without_a_gpu_at_all_the_reason_is_short(self, tmp_path: Path) -> None:
        (variant,) = Place(tmp_path, FakeCuda(gpus=0)).engine.variants()
        assert variant.reason == "CUDA shows no GPU"

    def test_a_device_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(Unsupported, match="there is no device 'cuda:3'; did you mean 'cuda:"):
            Place(tmp_path, FakeCuda(gpus=2)).load(device="cuda:3")

    def test_an_operator_that_onnx_does_not_have_is_unsupported(self, place: Place) -> None:
        model = classifier()
        model.graph.node[1].op_type = "Frobnicate"
        place.model.write_bytes(model.SerializeToString())
        with pytest.raises(Unsupported, match=r"mini\.onnx: tensorrt does not know the operator Frobnicate"):
            place.load()

    @pytest.mark.parametrize(
        ("axis", "message"), [(0, "its batch is fixed at 7, asked for 2"), (2, "axis besides the batch open")]
    )
    def test_shapes_that_cannot_be_fixed_are_refused(self, place: Place, axis: int, message: str) -> None:
        model = classifier()
        side = model.graph.input[0].type.tensor_type.shape.dim[axis]
        if axis:
            side.dim_param = "height"
        else:
            side.dim_value = 7
        place.model.write_bytes(model.SerializeToString())
        with pytest.raises(Unsupported, match=message):
            place.load()


PLUG_INS = {
    "tensorrt": "inferometer.engines.tensorrt.trt",
    "tensorrt_rtx": "inferometer.engines.tensorrt.rtx",
}


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Every vendor's module stands for itself alone, and the plug-ins are imported anew."""
    cuda = types.ModuleType("cuda.bindings")
    cuda.runtime = FakeCuda()  # type: ignore[attr-defined]
    vendors = {
        name: types.ModuleType(name) for name in ("tensorrt", "tensorrt_bindings", "tensorrt_rtx_bindings")
    }
    for name, module in {**vendors, "cuda": types.ModuleType("cuda"), "cuda.bindings": cuda}.items():
        module.__version__ = f"1.0 of {name}"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    for module in PLUG_INS.values():
        monkeypatch.delitem(sys.modules, module, raising=False)
    yield monkeypatch
    for module in PLUG_INS.values():
        sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("engine", "absent", "message"),
    [
        ("tensorrt", ["tensorrt", "tensorrt_bindings"], r"'tensorrt': pip install 'inferometer\[tensorrt\]'"),
        ("tensorrt", ["cuda.bindings"], r"'cuda-bindings': pip install 'inferometer\[tensorrt\]'"),
        ("tensorrt_rtx", ["tensorrt_rtx_bindings"],
         r"'tensorrt-rtx-cu13-bindings': pip install 'inferometer\[tensorrt-rtx\]'"),
        ("tensorrt_rtx", ["cuda.bindings"], r"'cuda-bindings': pip install 'inferometer\[tensorrt-rtx\]'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_extra(
    engine: str, absent: list[str], message: str, stubs: pytest.MonkeyPatch
) -> None:
    for name in absent:
        stubs.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=rf"^engine '{engine}' needs the package {message}$"):
        importlib.import_module(PLUG_INS[engine])


@pytest.mark.parametrize(
    ("engine", "kind", "absent", "version"),
    [
        ("tensorrt", "TensorRtEngine", [], "1.0 of tensorrt"),
        ("tensorrt", "TensorRtEngine", ["tensorrt"], "1.0 of tensorrt_bindings"),
        ("tensorrt_rtx", "TensorRtRtxEngine", [], "1.0 of tensorrt_rtx_bindings"),
    ],
)
def test_each_plug_in_takes_its_own_library(
    engine: str, kind: str, absent: list[str], version: str, stubs: pytest.MonkeyPatch
) -> None:
    for name in absent:
        stubs.setitem(sys.modules, name, None)
    made = getattr(importlib.import_module(PLUG_INS[engine]), kind)()
    assert (made.name, made.version, made.computes) == (engine, version, True)
    assert [device.name for device in made.devices()] == ["cuda:0"]
    assert made.qdq_scheme("cuda:0", {}).name == engine.replace("_", "-")
    assert made.times_kernels is (engine == "tensorrt")


@pytest.mark.parametrize("engine", ["tensorrt", "tensorrt_rtx"])
def test_its_form_of_files_is_known_without_it(engine: str) -> None:
    scheme = registry.qdq_scheme(engine, None, {})
    assert isinstance(scheme, QdqScheme)
    assert (scheme.activation_dtype, scheme.activation_symmetric, scheme.bias) == ("int8", True, "float")


def test_a_library_that_does_not_load_is_no_missing_package() -> None:
    words = r"does not load: libnvinfer\.so\.11: cannot open"
    with (
        pytest.raises(EngineError, match=words) as caught,
        importing("tensorrt", "tensorrt", "tensorrt"),
    ):
        raise ImportError("libnvinfer.so.11: cannot open shared object file")
    assert not isinstance(caught.value, MissingExtra)
