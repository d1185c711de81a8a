"""Every module imports without a vendor's library, and every command explains itself."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import inferometer
from inferometer.errors import MissingExtra

VENDORS = {"onnxruntime", "openvino", "pynvml", "simplejpeg", "tensorrt", "tensorrt_bindings", "tensorrt_rtx",
           "tensorrt_rtx_bindings", "torch", "cuda", "numba", "mlperf_loadgen", "urllib3"}  # fmt: skip
OWN = re.compile(
    r"inferometer\.(engines\.(onnxruntime|openvino|tensorrt|torch)\.|meters\.(nvml|redfish))"
)  # these may import theirs
COMPILED = {"inferometer.quantize.compiled", "inferometer.data.compiled"}  # where numba is, by one function
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(inferometer.__path__, "inferometer.")
    if module.name not in COMPILED and not OWN.match(module.name) and not module.name.endswith("__main__")
)
VERBS = [
    "demo", "run", "bench", "calibrate", "accuracy", "report", "models", "inventory", "published", "doctor",
    "engines", "explain", "meters",
]  # fmt: skip


def test_all_modules_import_without_any_vendors_library() -> None:
    script = (
        "import importlib, sys\n"
        f"for name in {sorted(VENDORS)!r}: sys.modules[name] = None\n"
        f"for name in {MODULES!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_exports_is_there(name: str) -> None:
    module = importlib.import_module(name)
    for export in getattr(module, "__all__", []):
        assert hasattr(module, export), f"{name} exports {export}, which is not there"


def test_what_an_engines_module_exports_is_there() -> None:
    for module in pkgutil.walk_packages(inferometer.__path__, "inferometer."):
        if OWN.match(module.name):
            try:
                found = importlib.import_module(module.name)
            except (ImportError, MissingExtra) as error:
                assert VENDORS & set(re.findall(r"\w+", str(error))), error  # noqa: PT017 (which one is the point)
                continue
            for export in found.__all__:
                assert hasattr(found, export), f"{module.name} exports {export}, which is not there"


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself(verb: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inferometer", verb, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: inferometer {verb}")
