from __future__ import annotations

import json
import socket
import sys
from importlib import metadata

import pytest
from pydantic import ValidationError

from inferometer.environment import Inventory, inventory, machine_key
from inferometer.environment.dmi import server_facts
from inferometer.environment.facts import Absent, read_int, read_text
from inferometer.environment.libraries import library_versions
from inferometer.environment.memory import memory_facts
from inferometer.environment.system import system_facts


def test_memory_in_bytes(tree, xeon):
    memory, missing = memory_facts(tree(xeon))
    assert memory.total_bytes == 1_024_000
    assert memory.available_bytes == 614_400
    assert memory.swap_total_bytes == 0
    assert memory.huge_page_bytes == 2_097_152
    assert (memory.huge_pages_total, memory.huge_pages_free) == (8, 3)
    assert memory.transparent_huge_pages == "madvise"
    assert missing == {}


def test_memory_rows_that_are_not_there(tree):
    memory, missing = memory_facts(tree({"proc/meminfo": "MemTotal: lots\n"}))
    assert memory.total_bytes is None
    assert missing["total_bytes"] == "/proc/meminfo has no row 'MemTotal'"
    assert missing["transparent_huge_pages"] == "/sys/kernel/mm/transparent_hugepage/enabled is not there"


def test_the_server_model(tree, xeon):
    server, missing = server_facts(tree(xeon))
    assert (server.sys_vendor, server.product_name, server.board_name) == (
        "Dell Inc.",
        "PowerEdge R740",
        "06WXJT",
    )
    assert missing == {}


def test_a_placeholder_is_no_model(tree):
    root = tree(
        {"sys/class/dmi/id/sys_vendor": "To Be Filled By O.E.M.\n", "sys/class/dmi/id/board_name": " \n"}
    )
    server, missing = server_facts(root)
    assert server.sys_vendor is None
    assert missing["sys_vendor"] == "the firmware holds only a placeholder ('To Be Filled By O.E.M.')"
    assert missing["board_name"] == "/sys/class/dmi/id/board_name is empty"
    assert missing["product_name"] == "/sys/class/dmi/id/product_name is not there"


def test_without_dmi_the_device_tree_names_the_board(tree, graviton):
    server, missing = server_facts(tree(graviton))
    assert server.product_name == "Some Arm Board Rev 1.0"
    assert server.sys_vendor is None
    assert missing["sys_vendor"].startswith("/sys/class/dmi/id is not there")


def test_the_system(tree, xeon):
    system, missing = system_facts(tree(xeon), {})
    assert (system.os_name, system.os_version) == ("Ubuntu", "22.04")
    assert system.kernel == "5.15.0-91-generic"
    assert system.virtual_machine is False
    assert system.container is None
    assert missing["container"] == "no sign of a container"


def test_a_virtual_machine_by_its_flag(tree, milan):
    system, missing = system_facts(tree(milan), {})
    assert system.virtual_machine is True
    assert missing["os_name"] == "neither /etc/os-release nor /usr/lib/os-release can be read"


def test_arm_shows_no_hypervisor_flag(tree, graviton):
    system, missing = system_facts(tree(graviton), {})
    assert system.virtual_machine is None
    assert "x86" in missing["virtual_machine"]


def test_os_release_in_its_second_place_with_a_broken_quote(tree):
    root = tree({"usr/lib/os-release": "NAME='Some Linux\nVERSION_ID=7\n\nnot a line\n"})
    system, _ = system_facts(root, {})
    assert (system.os_name, system.os_version) == ("'Some Linux", "7")


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"run/systemd/container": "lxc\n"}, {}, "lxc"),
        ({"proc/self/cgroup": "0::/kubepods/pod1\n"}, {}, "kubepods"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
    ],
)
def test_containers(tree, files, environ, kind):
    assert system_facts(tree(files), environ)[0].container == kind


def test_libraries_by_their_metadata(monkeypatch, tmp_path):
    (tmp_path / "onnxruntime_ep_nv_tensorrt-1.8.1.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "not there")])
    installed = {"numpy": "2.1.0", "onnxruntime-gpu": "1.20.1", "tensorrt": "10.7.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    versions, missing = library_versions()
    assert versions == {
        "inferometer": None,
        "numpy": "2.1.0",
        "onnx": None,
        "onnxruntime": None,
        "onnxruntime-ep-nv-tensorrt": "1.8.1",
        "onnxruntime-gpu": "1.20.1",
        "openvino": None,
        "pillow": None,
        "tensorrt": "10.7.0",
        "tensorrt-rtx": None,
        "torch": None,
    }
    assert missing["onnxruntime"] == "not installed, but onnxruntime-gpu is"
    assert missing["torch"] == "not installed"
    assert "numpy" not in missing


def test_machine_key_is_stable():
    # sha256 of '["CPU", "BOARD", ["GPU-1", "GPU-2"]]' by the sha256sum command.
    assert machine_key("CPU", "BOARD", ["GPU-2", None, "GPU-1"]) == "1937de44b6efcf95"
    assert machine_key("CPU", "BOARD", []) != machine_key("CPU", None, [])


def test_the_inventory_of_a_tree(tree, xeon):
    found = inventory(tree(xeon))
    assert found.cpu.model == "Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz"
    assert found.server.product_name == "PowerEdge R740"
    assert found.memory.total_bytes == 1_024_000
    assert found.missing["cgroup.cpu_quota_cores"] == "the control group sets no CPU quota"
    assert "cpu.model" not in found.missing


def test_the_inventory_survives_json(tree, milan):
    found = inventory(tree(milan))
    assert Inventory.model_validate_json(found.model_dump_json()) == found
    assert json.loads(found.model_dump_json())["cpu"]["features"] == [
        "avx",
        "avx2",
        "f16c",
        "fma",
        "sse4_1",
        "sse4_2",
        "ssse3",
    ]


def test_an_empty_tree_gives_reasons_for_everything(tmp_path):
    found = inventory(tmp_path)
    assert found.cpu.model is None
    assert found.missing["cpu.model"] == "/proc/cpuinfo is not there"
    assert found.missing["server.board_name"].startswith("/sys/class/dmi/id is not there")
    assert found.usable_cores >= 1


def test_nothing_private_is_in_it(tree, xeon):
    text = inventory(tree(xeon)).model_dump_json()
    assert "SECRET" not in text


def test_the_own_machine_keeps_its_name_to_itself():
    found = inventory()
    values = json.dumps(found.model_dump(mode="json"))
    assert f'"{socket.gethostname()}"' not in values
    assert found.cpu.logical_cores is None or found.cpu.logical_cores >= 1


def test_an_absence_without_its_reason_is_refused(tmp_path):
    found = inventory(tmp_path).model_dump()
    del found["missing"]["cpu.model"]
    with pytest.raises(ValidationError, match=r"disagree on cpu\.model"):
        Inventory.model_validate(found)


def test_it_is_frozen(tmp_path):
    with pytest.raises(ValidationError):
        inventory(tmp_path).usable_cores = 3


def test_a_folder_or_a_word_in_place_of_a_number(tree):
    root = tree({"proc/number": "twelve\n", "sys/folder/file": "1\n"})
    assert read_int(root, "proc/number") == Absent("/proc/number holds 'twelve', not a whole number")
    assert read_text(root, "sys/folder") == Absent("/sys/folder cannot be read: Is a directory")
    assert read_text(root, "sys/folder/file/below") == Absent("/sys/folder/file/below is not there")
