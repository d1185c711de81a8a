"""Execution providers that come as packages of their own, ``onnxruntime-ep-...``.

Such a package is found by the metadata of installed distributions; its module says where its library lies
and what it provides. The library is loaded when a provider of it is asked for, once per process.

Source: ONNX Runtime's documentation, "Plugin Execution Provider Libraries".
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxruntime

from inferometer.engines.onnxruntime.errors import VENDOR_ERRORS, vendor
from inferometer.errors import Unsupported, brief

__all__ = ["Plugin", "ep_name", "found_among", "places", "plugins", "registered"]

_PREFIX = "onnxruntime-ep-"
# What a package's module may raise, and what the vendor does about its library.
_FAILURES: tuple[type[Exception], ...] = (
    *(ImportError, AttributeError, OSError, StopIteration),
    *VENDOR_ERRORS,
)
_NVIDIA = 0x10DE  # Source: the PCI ID repository, vendor 10de


@dataclass(frozen=True)
class Plugin:
    """An installed package that brings a provider.

    Attributes:
        word: What the option ``provider`` calls it: the package's name without its beginning and without
            the version of CUDA at its end, such as ``nv-tensorrt-rtx``.
        package: The distribution's name.
        version: Its version.
        module: The module to import.
    """

    word: str
    package: str
    version: str
    module: str


@functools.cache
def plugins() -> Mapping[str, Plugin]:
    """The installed ones by word.

    Only folders of that name are read: going through all distributions may take half a second.
    """
    folders = [found for entry in sys.path for found in Path(entry).glob("onnxruntime[-_]ep[-_]*.dist-info")]
    return found_among(metadata.PathDistribution(folder) for folder in folders)


def found_among(distributions: Iterable[metadata.Distribution]) -> dict[str, Plugin]:
    """Those among distributions, by word; one that brings no module is left out."""
    found: dict[str, Plugin] = {}
    for distribution in distributions:
        name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"] or "")).lower()
        modules = {file.parts[0] for file in distribution.files or [] if file.parts[1:] == ("__init__.py",)}
        if name.startswith(_PREFIX) and modules:
            word = re.sub(r"-cu\d+$", "", name.removeprefix(_PREFIX))
            found.setdefault(word, Plugin(word, name, distribution.version, min(modules)))
    return found


def ep_name(plugin: Plugin) -> str:
    """The provider's name in ONNX Runtime; the package's module is imported, its library is not loaded.

    Raises:
        Unsupported: The module cannot be imported, or does not say.
    """
    module = _module(plugin)
    try:
        names = module.get_ep_names() if hasattr(module, "get_ep_names") else [module.get_ep_name()]
        return str(next(iter(names)))
    except _FAILURES as error:
        raise Unsupported(_broken(plugin, error)) from error


def registered(plugin: Plugin) -> tuple[Any, ...]:
    """The vendor's ``OrtEpDevice`` of the provider, its library having been loaded.

    Raises:
        Unsupported: It cannot be loaded here; the message says why.
    """
    _load(plugin)
    name = ep_name(plugin)
    return tuple(device for device in onnxruntime.get_ep_devices() if device.ep_name == name)


def places(devices: Iterable[Any]) -> dict[str, Any]:
    """A provider's ``OrtEpDevice`` by names of this project: ``cpu``, ``cuda:0``, ``gpu:0``, ``npu:0``.

    GPUs of NVIDIA are ``cuda``, all others ``gpu``; each kind is counted in the vendor's order.
    """
    named: dict[str, Any] = {}
    for device in devices:
        kind = str(device.device.type).rsplit(".", 1)[-1].lower()
        if kind == "gpu" and device.device.vendor_id == _NVIDIA:
            kind = "cuda"
        if kind == "cpu":
            named.setdefault(kind, device)
        else:
            named[f"{kind}:{sum(name.startswith(kind) for name in named)}"] = device
    return named


@functools.cache
def _load(plugin: Plugin) -> None:
    """Register the library; a failure is not remembered, so that it is met again."""
    if not hasattr(vendor, "register_execution_provider_library"):
        raise Unsupported(
            f"the package {plugin.package} needs an onnxruntime that takes plug-ins, and this is "
            f"{onnxruntime.__version__}: pip install -U onnxruntime"
        )
    module = _module(plugin)
    try:
        onnxruntime.register_execution_provider_library(
            f"inferometer-{plugin.word}", str(module.get_library_path())
        )
    except _FAILURES as error:
        raise Unsupported(_broken(plugin, error)) from error


def _module(plugin: Plugin) -> ModuleType:
    try:
        return importlib.import_module(plugin.module)
    except _FAILURES as error:
        raise Unsupported(_broken(plugin, error)) from error


def _broken(plugin: Plugin, error: BaseException) -> str:
    return f"the package {plugin.package} {plugin.version} does not load: {brief(error)}"
