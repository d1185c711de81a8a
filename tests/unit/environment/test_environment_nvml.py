from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from inferometer.environment import inventory
from inferometer.environment.nvml import gpu_facts


class FakeNvml(ModuleType):
    """The part of nvidia-ml-py that is used, for two boards: a P40 that answers less, and an H200."""

    NVML_DEVICE_MIG_ENABLE = 1

    class NVMLError(Exception):
        pass

    def __init__(self, *, boards=(0, 1), starts=True, lists=True):
        super().__init__("pynvml")
        self.boards, self.starts, self.lists = boards, starts, lists
        self.open = 0

    def nvmlInit(self):
        if not self.starts:
            raise self.NVMLError("NVML Shared Library Not Found")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        if not self.lists:
            raise self.NVMLError("Unknown Error")
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.boards[index]

    def nvmlDeviceGetName(self, board):
        return [b"Tesla P40", "NVIDIA H200"][board]

    def nvmlDeviceGetUUID(self, board):
        return [b"GPU-aaaa", "GPU-bbbb"][board]

    def nvmlDeviceGetPciInfo(self, board):
        return SimpleNamespace(busId=[b"0000:3B:00.0", "00000000:18:00.0"][board])

    def nvmlDeviceGetMemoryInfo(self, board):
        return SimpleNamespace(total=[25_769_803_776, 150_754_820_096][board])

    def nvmlSystemGetDriverVersion(self):
        return b"580.159.03"

    def nvmlDeviceGetEnforcedPowerLimit(self, board):
        return [250_000, 700_000][board]

    def nvmlDeviceGetMigMode(self, board):
        if board == 0:
            raise self.NVMLError("Not Supported")
        return [0, 1]


@pytest.fixture
def fake(monkeypatch):
    def install(**options):
        module = FakeNvml(**options)
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return module

    return install


def test_two_boards(fake):
    nvml = fake()
    (p40, h200), missing = gpu_facts()
    assert p40.model_dump() == {
        "index": 0,
        "name": "Tesla P40",
        "uuid": "GPU-aaaa",
        "pci_bus_id": "0000:3B:00.0",
        "memory_bytes": 25_769_803_776,
        "driver": "580.159.03",
        "power_limit_w": 250.0,
        "mig_mode": None,
    }
    assert h200.name == "NVIDIA H200"
    assert h200.power_limit_w == 700.0
    assert h200.mig_mode is False
    assert missing == {"0.mig_mode": "NVML: Not Supported"}
    assert nvml.open == 0


def test_the_inventory_names_the_missing_fact_by_its_place(fake, tmp_path):
    fake()
    found = inventory(tmp_path)
    assert [gpu.uuid for gpu in found.gpus] == ["GPU-aaaa", "GPU-bbbb"]
    assert found.missing["gpus.0.mig_mode"] == "NVML: Not Supported"
    assert "gpus" not in found.missing
    # The boards are part of the machine's identity.
    assert found.machine_key != inventory_key_without_gpus(fake, tmp_path)


def inventory_key_without_gpus(fake, root):
    fake(boards=())
    return inventory(root).machine_key


def test_no_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = inventory(tmp_path)
    assert found.gpus == ()
    assert found.missing["gpus"] == (
        "the package nvidia-ml-py is not installed: pip install 'inferometer[nvml]'"
    )


def test_no_driver(fake):
    nvml = fake(starts=False)
    assert gpu_facts() == ((), {"": "NVML does not start: NVML Shared Library Not Found"})
    assert nvml.open == 0


def test_a_driver_that_lists_nothing_is_shut_down_again(fake):
    nvml = fake(lists=False)
    assert gpu_facts() == ((), {"": "NVML does not list the GPUs: Unknown Error"})
    assert nvml.open == 0


def test_no_gpu(fake):
    fake(boards=())
    assert gpu_facts() == ((), {"": "NVML starts but shows no GPU"})
