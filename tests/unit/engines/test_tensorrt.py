"""TensorRT's engines on the tests' own TensorRT and CUDA: what is kept, what is refused, what is freed."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from inferometer.engines.tensorrt.engine import TensorRt
from inferometer.errors import OutOfMemory, Unsupported
from tests.contract.engines import classifier
from tests.unit.engines.cuda_fakes import INVALID, OUT_OF_MEMORY, FakeCuda
from tests.unit.engines.tensorrt_fakes import Place, feeds


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_it_settled_on_is_said_in_plain_values(place: Place) -> None:
    with place.load(optimization_level=5, workspace_mib=64, in_flight=3) as session:
        settled = json.loads(json.dumps(dict(session.settled)))
        assert session.compile_s is not None
        assert session.compile_s > 0
    assert settled == {
        "tensorrt": "11.0", "floats": "fp32", "tf32": False, "from_cache": False, "optimization_level": 5,
        "workspace_mib": 64, "shapes": {"input": [2, 3, 16, 16]}, "cuda_graph": True, "streams": 3,
        "copies": "included", "context_bytes": 4096,
    }  # fmt: skip
    (made,) = place.vendor.builds
    assert made == {
        "version": "11.0", "tf32": False, "flags": 2, "level": 5, "workspace": 64 << 20, "threads": 1,
        "timing": "", "verbosity": "DETAILED",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("precision", "tf32"), [("fp32", False), ("tf32", True), ("int8", False), ("fp16", False)]
)
def test_tf32_is_allowed_at_tf32_alone(place: Place, precision: str, tf32: bool) -> None:
    with place.load(precision) as session:
        assert session.settled["tf32"] is tf32
        assert {layer.precision for layer in session.executed() if layer.macs} == {"tf32" if tf32 else "fp32"}
    assert [made["tf32"] for made in place.vendor.builds] == [tf32]


def test_fp16_computes_in_halves_between_inputs_and_outputs_of_the_file(place: Place) -> None:
    with place.load("fp32") as session:
        wanted = session.infer(feeds())["logits"]
    with place.load("fp16") as session:
        assert [(one.name, one.dtype) for one in (*session.inputs, *session.outputs)] == [
            ("input", "float32"), ("logits", "float32"),
        ]  # fmt: skip
        found = session.infer(feeds())["logits"]
        assert session.settled["floats"] == "fp16"
        roles = {layer.name: layer.role for layer in session.profile()}
    assert 1e-6 < np.abs(found - wanted).max() / np.abs(wanted).max() < 1e-2
    assert {name for name, role in roles.items() if role == "reorder"} == {
        "Reformatting CopyNode for Input 0", "inferometer_cast_input", "inferometer_cast_logits_fp16",
    }  # fmt: skip


def test_floats_beside_int8_are_what_the_option_says(place: Place) -> None:
    with place.load("int8", float="fp16") as session:
        assert session.settled["floats"] == "fp16"
    with place.load("fp32", float="fp16") as session:
        assert session.settled["floats"] == "fp32"  # which says itself what its floats are


def test_weights_of_16_bits_are_refused_at_other_precisions(place: Place) -> None:
    model = classifier()
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save(model, place.model)
    for precision in ("fp32", "bf16"):
        with pytest.raises(Unsupported, match=rf"weight 'w1' is fp16, so it would not run in {precision}"):
            place.load(precision)
    with place.load("fp16") as session:
        assert session.inputs[0].dtype == "float16"


class TestPlans:
    def test_a_kept_plan_is_taken_and_takes_no_compiling(self, place: Place) -> None:
        with place.load() as session:
            wanted = session.infer(feeds())["logits"]
        with place.load() as session:
            assert (session.settled["from_cache"], session.compile_s) == (True, 0.0)
            np.testing.assert_array_equal(session.infer(feeds())["logits"], wanted)
        assert len(place.vendor.builds) == 1

    @pytest.mark.parametrize(
        ("precision", "batch", "options"),
        [
            ("tf32", 2, {}), ("bf16", 2, {}), ("fp32", 3, {}), ("fp32", 2, {"optimization_level": 1}),
            ("fp32", 2, {"workspace_mib": 8}),
        ],
    )  # fmt: skip
    def test_a_plan_serves_nothing_else(
        self,
        place: Place,
        precision: str,
        batch: int,
        options: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        place.load().close()
        if precision == "bf16":  # which ONNX Runtime, behind the plans here, does not compute
            precision = "fp16"
        place.load(precision, batch, **options).close()
        assert len(place.vendor.builds) == 2

    def test_another_model_gpu_driver_or_version_builds_anew(self, place: Place, tmp_path: Path) -> None:
        place.load().close()
        onnx.save(classifier(seed=9), place.model)
        place.load().close()
        place.cuda.capability = (9, 0)
        place.load().close()
        place.cuda.cudaDriverGetVersion = lambda: (0, 13010)  # type: ignore[method-assign]
        place.load().close()
        place.vendor.__version__ = "11.1"
        place.load().close()
        assert len(place.vendor.builds) == 5

    @pytest.mark.parametrize("change", ["cut", "foreign", "empty", "flipped"])
    def test_a_damaged_plan_is_built_anew(self, place: Place, change: str) -> None:
        place.load().close()
        (file,) = place.plans.glob("*.plan")
        content = file.read_bytes()
        file.write_bytes({
            "cut": content[:-7], "foreign": b"something else", "empty": b"",
            "flipped": content[:-1] + bytes([content[-1] ^ 1]),
        }[change])  # fmt: skip
        for from_cache in (False, True):
            with place.load() as session:
                assert session.settled["from_cache"] is from_cache

    def test_a_plan_that_no_longer_loads_is_built_anew(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(TensorRt, "version", "always the same")
        place.load().close()
        place.vendor.__version__ = "12.0"  # the library refuses what it wrote as another version
        with place.load() as session:
            assert session.settled["from_cache"] is False
            assert session.infer(feeds())["logits"].shape == (2, 5)
        with place.load() as session:
            assert session.settled["from_cache"] is True

    def test_a_kept_plan_that_finds_no_memory_is_not_built_anew(self, place: Place) -> None:
        place.load().close()
        place.vendor.fails["deserialize"] = "Error Code 2: OutOfMemory (no further information)"
        with pytest.raises(OutOfMemory):
            place.load()
        assert len(place.vendor.builds) == 1

    def test_times_of_kernels_are_handed_to_the_next_build(self, place: Place) -> None:
        place.load().close()
        place.load("tf32").close()
        place.load("fp16").close()
        assert [made["timing"] for made in place.vendor.builds] == ["", "timed;", "timed;timed;"]

    def test_times_that_the_builder_refuses_are_left(self, place: Place) -> None:
        place.load().close()
        (file,) = place.plans.glob("*.timing")
        head, _, _ = file.read_bytes().rpartition(b"\n")
        place.vendor.builds.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("inferometer.engines.tensorrt.cache.PlanCache.timing", lambda _: b"other")
            place.load("tf32").close()
        assert head
        assert [made["timing"] for made in place.vendor.builds] == [""]

    def test_none_keeps_nothing(self, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        for _ in range(2):
            place.load(cache="none").close()
        assert len(place.vendor.builds) == 2
        assert not (tmp_path / "xdg").exists()
        place.load(cache=None).close()
        assert list((tmp_path / "xdg" / "inferometer" / "tensorrt").glob("*.plan"))

    def test_a_folder_that_cannot_be_written_is_said_and_no_failure(
        self, place: Place, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        with place.load(cache=str(tmp_path / "file" / "plans")) as session:
            assert "file" in session.settled["cache_not_written"]


class TestTransfers:
    @pytest.mark.parametrize("graph", [True, False])
    def test_excluded_means_between_submit_and_wait(self, place: Place, graph: bool) -> None:
        with place.load(copies="excluded", cuda_graph=graph) as session:
            session.prepare(1, feeds())
            before = place.cuda.calls["cudaMemcpyAsync"]
            session.submit(1)
            session.wait(1)
            assert place.cuda.calls["cudaMemcpyAsync"] == before
            found = session.results(1)["logits"]
            assert session.settled["copies"] == "excluded"
        with place.load() as session:
            np.testing.assert_array_equal(found, session.infer(feeds())["logits"])

    def test_included_is_part_of_the_recorded_graph(self, place: Place) -> None:
        with place.load() as session:
            assert [len(graph[:-1]) for graph in place.cuda.graphs] == [3, 3]
            on_zeros = session.results(0)["logits"]
            session.prepare(0, feeds())
            session.submit(0)
            np.testing.assert_array_equal(session.view(0)["logits"], on_zeros)  # the stream is not done yet
            session.wait(0)
            assert np.abs(session.view(0)["logits"] - on_zeros).min() > 0

    def test_each_thread_says_which_gpu(self, tmp_path: Path) -> None:
        place = Place(tmp_path, FakeCuda(gpus=2))
        with place.load(device="cuda:1") as session:
            session.prepare(0, feeds())
            place.cuda.current.clear()
            thread = threading.Thread(target=lambda: (session.submit(0), session.wait(0)))
            thread.start()
            thread.join()
            assert place.cuda.current == [1]

    def test_memory_of_the_device_is_counted(self, place: Place) -> None:
        with place.load(in_flight=2) as session:
            assert session.device_peak_bytes() == 1000 + 2 * (2 * 3 * 16 * 16 * 4 + 2 * 5 * 4)


class TestGraphs:
    @pytest.mark.parametrize(
        "function",
        ["cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"],
    )
    def test_without_a_graph_calls_go_on_and_it_is_said(self, place: Place, function: str) -> None:
        with place.load() as session:
            wanted = session.infer(feeds())["logits"]
        place.cuda.fails[function] = (place.cuda.calls[function] + 2, INVALID)  # the second slot's
        with place.load() as session:
            assert session.settled["cuda_graph"] is False
            said = f"{function} of CUDA failed: invalid argument (error 1)"
            assert session.settled["cuda_graph_refused"] == said
            np.testing.assert_array_equal(session.infer(feeds())["logits"], wanted)
            assert place.cuda.graphs == []
        assert place.held() == {}

    def test_what_cannot_be_recorded_runs_without(self, place: Place) -> None:
        place.vendor.fails["record"] = "operation not permitted when stream is capturing"
        with place.load() as session:
            assert "not permitted when stream is capturing" not in str(session.infer(feeds()))
            assert session.settled["cuda_graph"] is False
        assert place.held() == {}

    def test_the_option_turns_it_off(self, place: Place) -> None:
        with place.load(cuda_graph=False) as session:
            assert session.settled["cuda_graph_refused"] == "the option cuda_graph is off"
            assert place.cuda.graphs == []


class TestMemory:
    @pytest.mark.parametrize(
        ("function", "call"),
        [("cudaMalloc", 1), ("cudaMalloc", 2), ("cudaMalloc", 3), ("cudaMallocHost", 1),
         ("cudaMallocHost", 4), ("cudaStreamCreateWithFlags", 1), ("cudaStreamCreateWithFlags", 2),
         ("cudaStreamSynchronize", 1),
         ("cudaStreamSynchronize", 3), ("cudaMemcpyAsync", 2)],
    )  # fmt: skip
    def test_when_cuda_has_none_left_all_is_given_back(self, place: Place, function: str, call: int) -> None:
        place.cuda.fails[function] = (call, OUT_OF_MEMORY)
        with pytest.raises(OutOfMemory, match=rf"mini\.onnx: {function} of CUDA failed: out of memory"):
            place.load()
        assert place.held() == {}

    @pytest.mark.parametrize("operation", ["builder", "build", "deserialize", "context", "run"])
    def test_when_tensorrt_has_none_left_all_is_given_back(self, place: Place, operation: str) -> None:
        place.vendor.fails[operation] = (
            "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at "
            "/_src/checkMacros.cpp:250 (cudaError 2: out of memory))"
        )
        with pytest.raises(OutOfMemory) as caught:
            place.load()
        said = "out of memory in tensorrt: Cuda Runtime (cudaError 2: out of memory)"
        assert str(caught.value) == f"{place.model}: {said}"
        del caught
        assert place.held() == {}

    def test_closing_gives_all_back(self, place: Place) -> None:
        session = place.load(in_flight=3)
        session.infer(feeds())
        session.profile()
        assert place.held()
        session.close()
        assert place.held() == {}
