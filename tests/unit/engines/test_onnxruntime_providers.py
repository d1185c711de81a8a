from __future__ import annotations

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from inferometer.contracts import Device
from inferometer.engines import schemes
from inferometer.engines.onnxruntime import opening as opening
from inferometer.engines.onnxruntime import plugins as packages
from inferometer.engines.onnxruntime import providers
from inferometer.engines.onnxruntime.engine import OnnxRuntimeEngine
from inferometer.engines.onnxruntime.opening import Opening
from inferometer.engines.onnxruntime.plugins import Plugin
from inferometer.engines.onnxruntime.providers import Provider
from inferometer.engines.onnxruntime.slots import DeviceSlot
from inferometer.errors import EngineError, Unsupported
from inferometer.records import Precision
from tests.contract.engines import classifier

TOO_OLD = not hasattr(providers.vendor.InferenceSession, "get_provider_graph_assignment_info")
CUDA = Provider("cuda", "CUDAExecutionProvider")
TENSORRT = Provider("tensorrt", "TensorrtExecutionProvider")
OPENVINO = Plugin("openvino", "onnxruntime-ep-openvino", "1.8.1", "onnxruntime_ep_openvino")
GPUS = (Device("cuda:0", "GPU A", "GPU-0"), Device("cuda:1", "GPU B", "GPU-1"))


@pytest.fixture
def on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if onnxruntime were the build for GPUs, on a machine with two."""
    built = [TENSORRT.name, CUDA.name, "CPUExecutionProvider"]
    monkeypatch.setattr(providers.onnxruntime, "get_available_providers", lambda: built)
    monkeypatch.setattr(providers, "cuda_gpus", lambda: GPUS)
    monkeypatch.setattr(providers, "plugins", dict)
    telling = type("InferenceSession", (), {"get_provider_graph_assignment_info": None})
    monkeypatch.setattr(providers.vendor, "InferenceSession", telling)


@pytest.fixture
def tf32(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that has settled on nothing yet."""
    monkeypatch.setattr(providers, "_tf32_settled", [])
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")  # so that it is put back afterwards
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE")
    return monkeypatch


class Installed(metadata.Distribution):
    """A distribution that lies nowhere."""

    def __init__(self, name: str, *files: str) -> None:
        self._name, self._files = name, files

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 3.2\n"
        return "\n".join(f"{file},," for file in self._files) if filename == "RECORD" else None

    def locate_file(self, path: Any) -> Path:
        return Path("/nowhere") / str(path)


def test_packages_are_found_by_the_beginning_of_their_names() -> None:
    found = packages.found_among(
        [
            Installed("numpy", "numpy/__init__.py"),
            Installed("onnxruntime_ep_some.new-cu13", "some_new/__init__.py", "some_new/inner/__init__.py"),
            Installed("onnxruntime-ep-meta"),  # depends on others and brings nothing itself
            Installed("onnxruntime-ep-webgpu", "onnxruntime_ep_webgpu/__init__.py"),
        ]
    )
    assert found == {
        "some-new": Plugin("some-new", "onnxruntime-ep-some-new-cu13", "3.2", "some_new"),
        "webgpu": Plugin("webgpu", "onnxruntime-ep-webgpu", "3.2", "onnxruntime_ep_webgpu"),
    }


def test_installed_packages_are_found_on_the_search_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "onnxruntime_ep_made_up-0.3.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxruntime-ep-made-up\nVersion: 0.3\n")
    (folder / "RECORD").write_text("made_up/__init__.py,,\n")
    monkeypatch.setattr(packages.sys, "path", [str(tmp_path), str(tmp_path / "absent"), ""])
    found = packages.plugins.__wrapped__()
    assert found == {"made-up": Plugin("made-up", "onnxruntime-ep-made-up", "0.3", "made_up")}


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (SimpleNamespace(), "has no attribute 'get_ep_name'"),
        (SimpleNamespace(get_ep_names=list), "does not load"),
    ],
)
def test_a_package_that_does_not_say_its_name_is_refused(
    module: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.importlib, "import_module", lambda name: module)
    with pytest.raises(Unsupported, match=message):
        packages.ep_name(OPENVINO)


@pytest.mark.skipif(TOO_OLD, reason="this onnxruntime takes no plug-ins")
def test_a_library_that_does_not_load_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    module = SimpleNamespace(
        get_library_path=lambda: str(broken), get_ep_names=lambda: ["BrokenExecutionProvider"]
    )
    monkeypatch.setattr(packages.importlib, "import_module", lambda name: module)
    plugin = Plugin("broken", "onnxruntime-ep-broken", "0.1", "broken")
    with pytest.raises(Unsupported, match=r"onnxruntime-ep-broken 0\.1 does not load: .*broken\.so"):
        packages.registered(plugin)
    monkeypatch.setattr(providers, "plugins", lambda: {"broken": plugin})
    (listed,) = [one for one in providers.provider_variants() if one.options == {"provider": "broken"}]
    assert "does not load" in str(listed.reason)
    assert listed.version == "0.1"
    assert "does not load" in str(OnnxRuntimeEngine().precisions("cpu", {"provider": "broken"})["fp32"])


def test_devices_of_plug_ins_have_names_by_kind_and_vendor() -> None:
    def device(kind: str, vendor: int) -> Any:
        return SimpleNamespace(device=SimpleNamespace(type=f"OrtHardwareDeviceType.{kind}", vendor_id=vendor))

    listed = [device("CPU", 1), device("GPU", 0x10DE), device("GPU", 0x8086), device("GPU", 0x10DE)]
    listed += [device("NPU", 0x8086), device("CPU", 1)]
    named = packages.places(listed)
    assert list(named) == ["cpu", "cuda:0", "gpu:0", "cuda:1", "npu:0"]
    assert [named[name] for name in named] == listed[:5]


def test_the_device_decides_where_no_provider_is_named() -> None:
    assert providers.provider_of("cpu", {}).name == "CPUExecutionProvider"
    assert providers.provider_of("cuda:1", {}) == CUDA


@pytest.mark.parametrize("ask", [providers.provider_of, OnnxRuntimeEngine().precisions])
def test_an_unknown_provider_is_an_error_that_offers_the_nearest(ask: Callable[..., Any]) -> None:
    with pytest.raises(EngineError, match=r"provider: 'openvin' is not known; did you mean 'openvino'\?"):
        ask("cpu", {"provider": "openvin"})


@pytest.mark.usefixtures("on_gpus")
def test_gpus_are_devices_where_a_provider_runs_on_them() -> None:
    assert [device.name for device in providers.found_devices()] == ["cpu", "cuda:0", "cuda:1"]
    assert providers.found_devices()[2].uuid == "GPU-1"


def test_gpus_are_no_devices_of_a_build_without_their_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "cuda_gpus", lambda: GPUS)
    monkeypatch.setattr(providers.onnxruntime, "get_available_providers", lambda: ["AzureExecutionProvider"])
    monkeypatch.setattr(providers, "plugins", dict)
    assert [device.name for device in providers.found_devices()] == ["cpu"]


@pytest.mark.usefixtures("on_gpus")
def test_what_providers_of_nvidia_run() -> None:
    cuda, tensorrt = (providers.refusals(provider, "cuda:1") for provider in (CUDA, TENSORRT))
    assert {name for name, reason in cuda.items() if reason is None} == {"fp32", "tf32", "fp16"}
    assert "no integer kernels" in str(cuda["int8"])
    assert set(tensorrt.values()) == {None}
    assert set(cuda) == set(tensorrt) == set(get_args(Precision))


@pytest.mark.usefixtures("on_gpus")
def test_a_device_that_the_provider_does_not_run_on_is_refused() -> None:
    assert providers.refusals(CUDA, "cpu")["fp32"] == (
        "the provider cuda runs on cuda:0 and cuda:1, asked for 'cpu'"
    )
    cpu = providers.provider_of("cuda:0", {"provider": "cpu"})
    assert "runs on cpu, asked for 'cuda:0'" in str(providers.refusals(cpu, "cuda:0")["fp32"])


def test_a_provider_that_is_absent_says_which_package_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(providers, "plugins", dict)
    listed = {one.options["provider"]: str(one.reason) for one in providers.provider_variants()}
    assert set(listed) == {"cuda", "tensorrt", "openvino", "nv-tensorrt-rtx", "webgpu"}
    assert all("pip install" in reason for reason in listed.values())
    assert "'onnxruntime-gpu[cuda,cudnn]'" in listed["cuda"]
    assert "onnxruntime-ep-openvino" in listed["openvino"]


def test_the_usual_way_is_listed_first() -> None:
    assert OnnxRuntimeEngine().variants()[0].options == {}


@pytest.mark.parametrize(
    ("provider", "precision", "expected"),
    [
        (CUDA, "fp32", {"device_id": "1", "use_tf32": "0"}),
        (CUDA, "tf32", {"device_id": "1", "use_tf32": "1"}),
        (CUDA, "fp16", {"device_id": "1", "use_tf32": "0"}),
        (
            TENSORRT,
            "int8",
            {"device_id": "1", "trt_fp16_enable": "0", "trt_bf16_enable": "0", "trt_int8_enable": "1"},
        ),
        (Provider("cuda", CUDA.name, OPENVINO), "fp32", {"use_tf32": "0"}),
        (Provider("webgpu", "WebGpuExecutionProvider", OPENVINO), "fp32", {}),
        (Provider("cpu", "CPUExecutionProvider"), "fp32", {}),
    ],
)
def test_providers_are_told_the_device_and_the_precision(
    provider: Provider, precision: Precision, expected: dict[str, str]
) -> None:
    assert providers.settings(provider, "cuda:1", precision, 2, 1, profiled=False) == expected


@pytest.mark.parametrize(("precision", "hint"), [("fp32", "f32"), ("bf16", "bf16"), ("int8", "f32")])
def test_openvino_is_told_its_precision_each_time(precision: Precision, hint: str) -> None:
    plugged = Provider("openvino", "OpenVINOExecutionProvider", OPENVINO)
    found = providers.settings(plugged, "cpu", precision, 4, 2, profiled=True)
    assert json.loads(found["load_config"]) == {
        "CPU": {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": "4",
            "NUM_STREAMS": "1",
            "PERF_COUNT": "YES",
        }
    }
    built_in = Provider("openvino", "OpenVINOExecutionProvider")
    found = providers.settings(built_in, "cpu", precision, 4, 2, profiled=True)
    assert found["device_type"] == "CPU"
    assert "PERF_COUNT" not in found["load_config"]


def test_fp32_by_tensorrt_switches_tf32_off(tf32: pytest.MonkeyPatch) -> None:
    providers.settle_tf32(TENSORRT, "fp32")
    assert providers.os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    providers.settle_tf32(TENSORRT, "fp32")
    with pytest.raises(Unsupported, match="NVIDIA_TF32_OVERRIDE=0 rules tf32 out"):
        providers.settle_tf32(CUDA, "tf32")


def test_a_process_that_ran_tf32_by_tensorrt_does_not_run_fp32(tf32: pytest.MonkeyPatch) -> None:
    providers.settle_tf32(TENSORRT, "tf32")
    assert "NVIDIA_TF32_OVERRIDE" not in providers.os.environ
    with pytest.raises(Unsupported, match="has run the provider tensorrt in another"):
        providers.settle_tf32(TENSORRT, "fp32")


def test_an_environment_that_forces_tf32_rules_fp32_out(tf32: pytest.MonkeyPatch) -> None:
    tf32.setenv("NVIDIA_TF32_OVERRIDE", "1")
    with pytest.raises(Unsupported, match="rules fp32 out"):
        providers.settle_tf32(CUDA, "fp32")
    providers.settle_tf32(CUDA, "fp16")
    providers.settle_tf32(Provider("cpu", "CPUExecutionProvider"), "fp32")


def test_each_provider_has_a_form_of_int8_or_says_that_it_has_none() -> None:
    assert schemes.onnxruntime("cpu", {"provider": "openvino"}) == schemes.openvino("cpu", {})
    assert schemes.onnxruntime("cuda:0", {"provider": "tensorrt"}) == schemes.tensorrt("cuda:0", {})
    found = schemes.onnxruntime("cuda:0", {"provider": "nv-tensorrt-rtx"})
    assert found == schemes.tensorrt_rtx("cuda:0", {})
    assert schemes.onnxruntime("cpu", {"provider": "cpu"}) == schemes.onnxruntime("cpu", {})
    for options in ({}, {"provider": "cuda"}, {"provider": "webgpu"}):
        with pytest.raises(Unsupported, match="runs no form of int8"):
            schemes.onnxruntime("cuda:0", options)


class Assigned:
    """A session of which only the assignment of nodes matters."""

    def __init__(self, **parts: list[tuple[str, str]]) -> None:
        self.parts = [
            SimpleNamespace(
                ep_name=name,
                get_nodes=lambda nodes=nodes: [SimpleNamespace(name=n, op_type=op) for n, op in nodes],
            )
            for name, nodes in parts.items()
        ]

    def get_provider_graph_assignment_info(self) -> list[Any]:
        return self.parts


def on(provider: Provider, device: str = "cuda:0", **more: Any) -> Opening:
    return Opening(Path("m.onnx"), provider, device, "fp32", threads=1, **more)


def test_nodes_that_fell_back_are_counted_and_the_first_twenty_named() -> None:
    left = [(f"n{number}", "Foo") for number in range(24)] + [("", "Bar")]
    session = Assigned(CUDAExecutionProvider=[("c", "Conv")], CPUExecutionProvider=left[::-1])
    found = opening.assignment(session, on(CUDA))
    assert found["nodes"] == {"CUDAExecutionProvider": 1, "CPUExecutionProvider": 25}
    assert len(found["fallback"]) == 20
    assert found["fallback"][:2] == ["without a name (Bar)", "n23 (Foo)"]


def test_a_model_of_which_the_provider_takes_nothing_is_refused() -> None:
    session = Assigned(CPUExecutionProvider=[("c", "Conv"), ("r", "Relu")])
    with pytest.raises(Unsupported, match=r"CUDAExec.* takes none of its 2 nodes, such as c \(Conv\)"):
        opening.assignment(session, on(CUDA))


@pytest.mark.usefixtures("on_gpus")
def test_an_onnxruntime_that_does_not_tell_runs_on_the_cpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu = Provider("cpu", "CPUExecutionProvider")
    monkeypatch.setattr(providers.vendor, "InferenceSession", object)
    assert "does not tell which nodes CUDAExec" in str(providers.refusals(CUDA, "cuda:0")["fp32"])
    assert providers.refusals(cpu, "cpu")["fp32"] is None
    assert opening.assignment(object(), on(cpu, "cpu")) == {}


def test_a_provider_whose_libraries_are_missing_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}

    def session(source: str, options: Any, **keywords: Any) -> Any:
        asked.update(keywords)
        return SimpleNamespace(get_providers=lambda: ["CPUExecutionProvider"])

    monkeypatch.setattr(opening.onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(opening.onnxruntime, "preload_dlls", lambda: print("missed"), raising=False)
    path = tmp_path / "m.onnx"
    onnx.save(classifier(), path)
    wanted = Opening(path, TENSORRT, "cuda:1", "fp16", threads=1)
    with pytest.raises(Unsupported, match="onnxruntime did not take TensorrtExecutionProvider"):
        opening.open_session(wanted, opening.session_options(wanted, 1))
    assert [one if isinstance(one, str) else one[0] for one in asked["providers"]] == [
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ]
    assert asked["providers"][0][1]["trt_fp16_enable"] == "1"
    assert asked["providers"][1][1] == {"device_id": "1", "use_tf32": "0"}
    assert asked["enable_fallback"] == 0
    assert capsys.readouterr().out == ""


class FakeBinding:
    """Notes what is bound, and copies the input to the output."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.values = values

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))

    def get_outputs(self) -> list[Any]:
        return [self.values["y"], self.values["free"]]


def test_without_copies_inputs_and_outputs_stay_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, free = np.ones((2, 3), np.float32), np.zeros((2, 3)), np.zeros(4)
    value_of = {"y": SimpleNamespace(numpy=lambda: y), "free": SimpleNamespace(numpy=lambda: free)}
    binding = FakeBinding(value_of)
    placed = SimpleNamespace(ortvalue_from_numpy=lambda array, kind, index: (array.shape, kind, index))
    monkeypatch.setattr("inferometer.engines.onnxruntime.slots.onnxruntime.OrtValue", placed)
    runs: list[Any] = []
    session: Any = SimpleNamespace(io_binding=lambda: binding, run_with_iobinding=runs.append)
    slot = DeviceSlot(session, ["y", "free"], {"y", "free"}, {"y"}, 1)
    slot.feed({"x": x})
    assert binding.calls == [
        ("bind_ortvalue_input", "x", ((2, 3), "cuda", 1)),
        ("synchronize_inputs",),
    ]
    binding.calls.clear()
    slot.run()
    assert binding.calls == [
        ("bind_output", "y", "cuda", 1),
        ("bind_output", "free", "cuda", 1),
        ("synchronize_outputs",),
        ("bind_ortvalue_output", "y", value_of["y"]),
    ]
    binding.calls.clear()
    slot.run()
    assert binding.calls == [("bind_output", "free", "cuda", 1), ("synchronize_outputs",)]
    assert runs == [binding, binding]
    assert slot.outputs()["y"] is y
    assert slot.outputs()["free"] is free


@pytest.mark.parametrize(
    ("device", "options", "error", "message"),
    [
        (
            "cpu",
            {"copies": "exclude"},
            EngineError,
            "copies: 'exclude' is not known; did you mean 'excluded'",
        ),
        ("cpu", {"threads": 0.5}, EngineError, "threads: wants a whole number"),
        ("cpu", {"in_flight": -1}, EngineError, "in_flight: wants a whole number"),
        ("cpu", {"provider": 3}, EngineError, "provider: 3 is not known"),
        ("cpu", {"provider": ["cpu"]}, EngineError, "provider: .* is not known"),
    ],
)
def test_bad_options_are_refused_before_the_file_is_read(
    device: str, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        OnnxRuntimeEngine().load(tmp_path / "absent.onnx", device, "fp32", 1, options)
