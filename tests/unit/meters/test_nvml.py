"""The real pynvml against a stand-in for the driver's library (nvml_stub.c), each time in a new process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inferometer import clock_events
from inferometer.errors import ConfigError

pynvml = pytest.importorskip("pynvml", reason="the package nvidia-ml-py is not installed")

from inferometer.meters.nvml import NvmlMeter  # noqa: E402
from inferometer.meters.nvml_gpu import Refused  # noqa: E402

FIRST, SECOND = "GPU-aabb1111-0000", "GPU-aabb2222-0000"
COUNTER = "nvmlDeviceGetTotalEnergyConsumption"
USAGE = "nvmlDeviceGetPowerUsage"

# Opens the meter, reads each channel so many times, and tells what came of it.
SESSION = """
import ctypes, dataclasses, json, sys
from inferometer.errors import InferometerError
from inferometer.meters.nvml import NvmlMeter

options, times = json.loads(sys.argv[1])
told = {"status": [dataclasses.asdict(one) for one in NvmlMeter().status(options)]}

def ask(session, place):
    try:
        return session.read(place)
    except InferometerError as error:
        return f"{type(error).__name__}: {error}"

try:
    with NvmlMeter().open(options) as session:
        told["channels"] = [dataclasses.asdict(channel) for channel in session.channels]
        told["facts"] = dict(session.facts)
        told["reads"] = {
            channel.name: [ask(session, place) for _ in range(times)]
            for place, channel in enumerate(session.channels)
        }
except InferometerError as error:
    told["error"] = f"{type(error).__name__}: {error}"
told["running"] = ctypes.CDLL("libnvidia-ml.so.1").stub_running()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders that hold the stand-in: as newer drivers are, and as older ones."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build the stand-in for libnvidia-ml.so.1")
    source = Path(__file__).with_name("nvml_stub.c")
    built = {}
    for name, flags in {"new": [], "old": ["-DOLD"]}.items():
        built[name] = tmp_path_factory.mktemp(name)
        library = built[name] / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", library, source], check=True)
    return built


def told(folder: Path, stub: str, options: dict[str, Any] | None = None, times: int = 1, **more: str) -> Any:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
    done = subprocess.run(
        [sys.executable, "-c", SESSION, json.dumps([options or {}, times])],
        env=environment | {"LD_LIBRARY_PATH": str(folder), "NVML_STUB": stub} | more,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    # Whatever happened, NVML was let go of.
    assert answer.pop("running") == 0
    return answer


def channel(quantity: str, uuid: str = FIRST, **more: Any) -> dict[str, Any]:
    plain = {
        "name": f"{quantity.replace('_', ' ')} {uuid}",
        "quantity": quantity,
        "boundary": "GPU board",
        "part": uuid,
        "primary": False,
        "step_s": None,
        "gain_error": None,
        "of_device": True,
        "pushed": False,
    }
    return plain | more


ENERGY = {"semantics": "counter since driver load", "period_s": 1.0, "gain_error": 0.05, "primary": True}
POWER = {"semantics": "instantaneous", "period_s": 0.1, "gain_error": 0.05}
CONDITIONS = {
    "temperature": {"semantics": "instantaneous", "period_s": 1.0},
    "clock": {"semantics": "SM clock", "period_s": 1.0},
    "clock_events": {"semantics": "bits of NVML's clock event reasons", "period_s": 1.0},
    "performance_state": {"semantics": "0 the fastest", "period_s": 1.0},
    "power_limit": {"semantics": "enforced limit", "period_s": 2.0},
    "processes": {"semantics": "compute processes", "period_s": 2.0},
}
READS = ["temperature", "clock", "clock events", "performance state", "power limit", "processes"]


def electric(answer: Any) -> list[tuple[str, str, str, bool]]:
    return [
        (one["quantity"], one["boundary"], one["semantics"], one["primary"])
        for one in answer["channels"]
        if one["quantity"] in ("energy", "power")
    ]


def parts(answer: Any) -> list[str]:
    return list(dict.fromkeys(one["part"] for one in answer["channels"]))


def test_a_counter_with_power_beside_it(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "hopper", times=2)
    assert answer["channels"] == [
        channel("energy", step_s=0.1, **ENERGY),
        channel("power", step_s=0.1, **POWER),
        *(channel(quantity, **more) for quantity, more in CONDITIONS.items()),
    ]
    # Millijoules, milliwatts and MHz; the counter was asked once when the meter opened.
    assert answer["reads"] == {
        f"energy {FIRST}": [1028.0, 1042.0],
        f"power {FIRST}": [123.456, 123.456],
        f"temperature {FIRST}": [41.0, 41.0],
        f"clock {FIRST}": [1.98e9, 1.98e9],
        f"clock events {FIRST}": [68.0, 68.0],
        f"performance state {FIRST}": [2.0, 2.0],
        f"power limit {FIRST}": [700.0, 700.0],
        f"processes {FIRST}": [3.0, 3.0],
    }
    facts = answer["facts"]["gpus"][FIRST]
    assert answer["facts"]["driver"] == "580.159.03"
    assert "left_out" not in answer["facts"]
    temperature = facts["calls"].pop("temperature")  # which of two names depends on the package's version
    assert temperature.startswith("nvmlDeviceGetTemperature")
    assert facts == {
        "name": "NVIDIA H200",
        "index": 0,
        "pci_bus_id": "00000000:18:00.0",
        "compute_capability": "9.0",
        "calls": {
            "energy": COUNTER,
            "power": "field 186, scope 0",
            "clock": "nvmlDeviceGetClockInfo",
            "clock_events": "nvmlDeviceGetCurrentClocksEventReasons",
            "performance_state": "nvmlDeviceGetPerformanceState",
            "power_limit": "nvmlDeviceGetEnforcedPowerLimit",
            "processes": "nvmlDeviceGetComputeRunningProcesses_v3",
        },
        "absent": {},
    }
    assert answer["status"] == [
        {
            "subject": f"NVIDIA H200 {FIRST}",
            "reads": ["energy counter", "instantaneous power", *READS],
            "reason": None,
            "remedy": None,
        }
    ]


def test_neither_counter_nor_fields(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "pascal")
    assert electric(answer) == [("power", "GPU board", "instantaneous", True)]
    assert answer["reads"][f"power {FIRST}"] == [52.345]
    assert answer["channels"][0]["step_s"] is None
    facts = answer["facts"]["gpus"][FIRST]
    assert facts["calls"]["power"] == USAGE
    # What the driver does not answer has no channel.
    assert facts["absent"] == {
        "energy": f"{COUNTER}: Not Supported",
        "power_limit": "nvmlDeviceGetEnforcedPowerLimit: Unknown Error",
    }
    assert "power_limit" not in [one["quantity"] for one in answer["channels"]]
    assert answer["status"][0]["reads"] == [
        "instantaneous power",
        *(one for one in READS if one != "power limit"),
    ]


def test_instantaneous_power_without_a_counter(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "pascal186")
    assert electric(answer) == [("power", "GPU board", "instantaneous", True)]
    assert answer["facts"]["gpus"][FIRST]["calls"]["power"] == "field 186, scope 0"
    assert answer["reads"][f"power {FIRST}"] == [123.456]


def test_an_old_driver_lacks_functions(folders: dict[str, Path]) -> None:
    answer = told(folders["old"], "hopper")
    assert electric(answer) == [
        ("energy", "GPU board", "counter since driver load", True),
        ("power", "GPU board", "average over 1 s", False),
    ]
    assert answer["reads"][f"power {FIRST}"] == [131.072]
    assert answer["reads"][f"clock events {FIRST}"] == [1.0]
    calls = answer["facts"]["gpus"][FIRST]["calls"]
    assert calls["power"] == USAGE
    assert calls["clock_events"] == "nvmlDeviceGetCurrentClocksThrottleReasons"
    if hasattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v2"):
        assert answer["reads"][f"processes {FIRST}"] == [1.0]
    assert answer["status"][0]["reads"][:2] == ["energy counter", "power (average over 1 s)"]


@pytest.mark.parametrize(
    ("capability", "semantics"),
    [
        ("7,0", "instantaneous"),
        ("8,0", "instantaneous"),
        ("8,6", "average over 1 s"),
        ("none", "instantaneous or average over 1 s: the driver does not tell the architecture"),
    ],
)
def test_what_power_usage_is_depends_on_the_architecture(
    folders: dict[str, Path], capability: str, semantics: str
) -> None:
    answer = told(folders["old"], "hopper", NVML_STUB_CAPABILITY=capability)
    assert electric(answer)[1] == ("power", "GPU board", semantics, False)
    assert [one["step_s"] for one in answer["channels"][:2]] == [None, None]


@pytest.mark.parametrize(
    ("field", "watts"),
    [("0,0", 123.4565), ("0,2", 123.457), ("0,3", 123.458), ("0,5", 123.459), ("0,6", 60.0)],
)
def test_a_field_is_decoded_by_its_type(folders: dict[str, Path], field: str, watts: float) -> None:
    answer = told(folders["new"], "hopper", NVML_STUB_FIELD=field)
    if field == "0,6" and "usVal" not in dict(pynvml.c_nvmlValue_t._fields_):
        watts = 131.072
    assert answer["reads"][f"power {FIRST}"] == [watts]


@pytest.mark.parametrize("field", ["3,1", "999,3", "0,4", "0,9"])
def test_a_field_without_a_value_is_not_read(folders: dict[str, Path], field: str) -> None:
    # Not supported; another error; a negative value; a type that is not known.
    answer = told(folders["new"], "hopper", NVML_STUB_FIELD=field)
    assert answer["reads"][f"power {FIRST}"] == [131.072]
    assert answer["facts"]["gpus"][FIRST]["calls"]["power"] == USAGE


def test_a_module_is_not_called_a_board(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "grace")
    assert electric(answer) == [
        ("energy", "GPU module", "counter since driver load", True),
        ("power", "GPU module", "instantaneous", False),
    ]
    assert answer["reads"][f"power {FIRST}"] == [410.0]
    # Without power of the module, power of the GPU stands for itself: it is no check on the module's counter.
    answer = told(folders["old"], "grace")
    assert electric(answer) == [
        ("energy", "GPU module", "counter since driver load", True),
        ("power", "GPU board", "average over 1 s", True),
    ]


def test_an_unknown_performance_state_is_left_out(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "hopper", NVML_STUB_STATE="32")
    assert answer["facts"]["gpus"][FIRST]["absent"] == {
        "performance_state": "nvmlDeviceGetPerformanceState: it answers that the state is unknown"
    }


@pytest.mark.parametrize(
    ("stub", "reason", "remedy"),
    [
        (
            "mig",
            f"{FIRST} is split into MIG instances, and its power is that of the whole board",
            f"switch MIG off: sudo nvidia-smi -i {FIRST} -mig 0",
        ),
        (
            "vgpu",
            "this is a virtual GPU (vGPU), and its power is that of the whole board",
            "use the GPU without virtualization, or pass the whole of it through to one machine",
        ),
        (
            "host_vgpu",
            "the GPU is shared by virtual GPUs (vGPU), and its power is that of the whole board",
            "use the GPU without virtualization, or pass the whole of it through to one machine",
        ),
        (
            "bare",
            f"NVIDIA H200 {FIRST} tells neither energy nor power (energy: {COUNTER}: Not Supported; power: "
            f"field 186, scope 0: Not Supported; {USAGE}: Not Supported)",
            "measure at the server's inlet (redfish, ipmi) instead",
        ),
    ],
)
def test_a_gpu_that_must_not_be_measured(
    folders: dict[str, Path], stub: str, reason: str, remedy: str
) -> None:
    answer = told(folders["new"], stub)
    assert answer == {
        "status": [
            {"subject": f"NVIDIA H200 {FIRST}", "reads": [], "reason": reason, "remedy": remedy},
        ],
        "error": f"Refused: NVML: {reason}; {remedy}",
    }


def test_a_gpu_passed_through_whole_is_measured(folders: dict[str, Path]) -> None:
    assert told(folders["new"], "passthrough")["reads"][f"energy {FIRST}"] == [1028.0]


def test_a_gpu_that_is_lost(folders: dict[str, Path]) -> None:
    # Energy and power were asked once each when the meter opened.
    answer = told(folders["new"], "hopper", times=2, NVML_STUB_LOST_AFTER="3")
    lost = "GPU is lost; look for Xid messages in dmesg, then reset the GPU or restart the machine"
    assert answer["reads"][f"energy {FIRST}"] == [1028.0, f"MeterError: NVML: no energy {FIRST}: {lost}"]
    assert answer["reads"][f"power {FIRST}"] == [f"MeterError: NVML: no power {FIRST}: {lost}"] * 2


def test_a_counter_that_went_back_is_not_believed_again(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "hopper", times=100, NVML_STUB_FALLS="4")
    gone = (
        f"MeterError: NVML: energy {FIRST} went back: the GPU was reset or its driver reloaded; measure again"
    )
    # Even once it has passed where it was: what was used in between is not known.
    assert answer["reads"][f"energy {FIRST}"] == [1028.0, 1042.0, *[gone] * 98]
    assert answer["reads"][f"power {FIRST}"] == [123.456] * 100


@pytest.mark.parametrize(
    ("result", "reason", "remedy"),
    [
        ("9", "NVIDIA's driver is not loaded", "sudo modprobe nvidia"),
        ("18", "the driver's library and its kernel module are of different versions", "restart the machine"),
        ("999", "it does not start: Unknown Error", "see what nvidia-smi says"),
    ],
)
def test_no_driver(folders: dict[str, Path], result: str, reason: str, remedy: str) -> None:
    assert told(folders["new"], "hopper", NVML_STUB_INIT=result) == {
        "status": [{"subject": "NVML", "reads": [], "reason": reason, "remedy": remedy}],
        "error": f"Refused: NVML: {reason}; {remedy}",
    }


def test_no_gpu(folders: dict[str, Path]) -> None:
    answer = told(folders["new"], "nothing")
    assert answer["status"][0]["reason"] == "it starts but shows no GPU"


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", start)
    (status,) = NvmlMeter().status({})
    assert (status.subject, status.reads) == ("NVML", ())
    assert status.reason == "the driver's library libnvidia-ml.so.1 is not here"
    with pytest.raises(Refused, match=r"^NVML: the driver's library .* is not here; install NVIDIA's driver"):
        NvmlMeter().open({})


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ([SECOND], [SECOND]),
        ([SECOND, FIRST], [SECOND, FIRST]),
        (["gpu-AABB2"], [SECOND]),
        (["0000:5D:00.0"], [SECOND]),
        (["5d:00.0", "00000000:18:00.0", FIRST], [SECOND, FIRST]),
    ],
)
def test_devices_by_name(folders: dict[str, Path], devices: list[str], found: list[str]) -> None:
    # CUDA_VISIBLE_DEVICES does not matter then.
    answer = told(folders["new"], "two", {"devices": devices}, CUDA_VISIBLE_DEVICES="")
    assert parts(answer) == found
    assert [one["subject"] for one in answer["status"]] == [f"NVIDIA H200 {uuid}" for uuid in found]


@pytest.mark.parametrize(
    ("devices", "error"),
    [
        (
            ["GPU-cc"],
            "Refused: NVML: there is no GPU 'GPU-cc'; there are NVIDIA H200 GPU-aabb1111-0000,"
            " NVIDIA H200 GPU-aabb2222-0000",
        ),
        (
            ["MIG-aabb"],
            "Refused: NVML: 'MIG-aabb' is a MIG instance, and power is that of the whole board;"
            " switch MIG off and measure the whole GPU",
        ),
    ],
)
def test_devices_that_are_not_there(folders: dict[str, Path], devices: list[str], error: str) -> None:
    assert told(folders["new"], "two", {"devices": devices})["error"] == error


VISIBLE = [
    ("two", {}, [FIRST, SECOND]),
    ("two", {"CUDA_VISIBLE_DEVICES": "1"}, [SECOND]),
    ("two", {"CUDA_VISIBLE_DEVICES": " 1, 0"}, [SECOND, FIRST]),
    ("two", {"CUDA_VISIBLE_DEVICES": "1,-1,0"}, [SECOND]),
    ("two", {"CUDA_VISIBLE_DEVICES": "GPU-aabb2"}, [SECOND]),
    ("unlike", {"CUDA_VISIBLE_DEVICES": "GPU-aabb2"}, [SECOND]),
    ("unlike", {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [SECOND]),
    ("unlike", {"CUDA_VISIBLE_DEVICES": "0,1"}, [FIRST, SECOND]),
    ("dead", {}, [FIRST]),
    ("mixed", {}, [SECOND]),
]


@pytest.mark.parametrize(("stub", "environment", "found"), VISIBLE)
def test_devices_that_cuda_may_use(
    folders: dict[str, Path], stub: str, environment: dict[str, str], found: list[str]
) -> None:
    assert parts(told(folders["new"], stub, **environment)) == found


@pytest.mark.parametrize(
    ("visible", "reason"),
    [
        ("", "CUDA_VISIBLE_DEVICES='' hides every GPU"),
        ("-1", "CUDA_VISIBLE_DEVICES='-1' hides every GPU"),
        ("GPU-aabb", "CUDA_VISIBLE_DEVICES='GPU-aabb' hides every GPU"),
        ("NoDevFiles", "CUDA_VISIBLE_DEVICES='NoDevFiles' hides every GPU"),
        (
            "1",
            "CUDA_VISIBLE_DEVICES='1' does not tell which of several unlike GPUs is meant, since CUDA counts"
            " them in an order of its own",
        ),
        ("MIG-aabb", "'MIG-aabb' is a MIG instance, and power is that of the whole board"),
    ],
)
def test_devices_that_cuda_hides(folders: dict[str, Path], visible: str, reason: str) -> None:
    answer = told(folders["new"], "unlike", CUDA_VISIBLE_DEVICES=visible)
    assert [(one["subject"], one["reason"]) for one in answer["status"]] == [("NVML", reason)]
    assert answer["error"].startswith(f"Refused: NVML: {reason}; ")


def test_gpus_are_left_out_only_where_none_is_named(folders: dict[str, Path]) -> None:
    split = f"{FIRST} is split into MIG instances, and its power is that of the whole board"
    answer = told(folders["new"], "mixed")
    assert answer["facts"]["left_out"] == {f"NVIDIA H200 {FIRST}": split}
    assert [one["reason"] for one in answer["status"]] == [split, None]
    assert answer["reads"][f"processes {SECOND}"] == [0.0]
    answer = told(folders["new"], "mixed", {"devices": [SECOND, FIRST]})
    assert answer["error"].startswith(f"Refused: NVML: {split}")
    assert told(folders["new"], "dead")["facts"]["left_out"] == {
        "GPU 1": "GPU 1 does not answer: GPU is lost"
    }


def test_a_beginning_that_several_have(folders: dict[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SESSION, json.dumps([{"devices": ["GPU-aabb"]}, 1])],
        env=os.environ | {"LD_LIBRARY_PATH": str(folders["new"]), "NVML_STUB": "two"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ConfigError: nvml: devices: 'GPU-aabb' fits 2 GPUs: give more of the UUID" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": ["x"]}, "nvml: unknown option 'device'; did you mean 'devices'?"),
        ({"devices": FIRST}, f"nvml: devices: wants a list of GPUs' UUIDs or PCI bus ids: '{FIRST}'"),
        ({"devices": []}, "nvml: devices: wants a list of GPUs' UUIDs or PCI bus ids: []"),
        ({"devices": [0]}, "nvml: devices: wants UUIDs or PCI bus ids (nvidia-smi -L tells the UUIDs): 0"),
        (
            {"devices": [" "]},
            "nvml: devices: wants UUIDs or PCI bus ids (nvidia-smi -L tells the UUIDs): ' '",
        ),
    ],
)
def test_options_are_checked_before_anything_starts(options: dict[str, Any], message: str) -> None:
    for use in (NvmlMeter().status, NvmlMeter().open):
        with pytest.raises(ConfigError) as caught:
            use(options)
        assert str(caught.value) == message


def test_clock_events_in_words() -> None:
    assert clock_events.named(0) == ()
    assert clock_events.named(4 | 64 | 0x200) == (
        "power limit reached",
        "slowed by hardware for heat",
        "unknown reason 0x200",
    )
    with pytest.raises(ValueError, match="not negative: -1"):
        clock_events.named(-1)


def test_clock_events_are_those_of_nvml() -> None:
    bits = {value for name, value in vars(pynvml).items() if name.startswith("nvmlClocksEventReason")}
    single = {value for value in bits if isinstance(value, int) and value.bit_count() == 1}
    assert set(clock_events.CLOCK_EVENTS) == single
    assert (
        pynvml.nvmlClocksEventReasonHwSlowdown
        | pynvml.nvmlClocksEventReasonSwThermalSlowdown
        | pynvml.nvmlClocksEventReasonHwThermalSlowdown
        | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    ) == clock_events.SLOWING
    assert pynvml.nvmlClocksEventReasonSwPowerCap == clock_events.POWER_CAP
