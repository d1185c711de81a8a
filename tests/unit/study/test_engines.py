"""Asking every declared engine what it can do; one that is broken is told of, and hides no other."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from inferometer import registry
from inferometer.errors import ConfigError
from inferometer.study.engines import EngineFacts, engine_facts

PLUGINS = '''
"""Engines with one fault each."""

from inferometer.contracts import Device, Variant
from inferometer.engines.null import NullEngine


class Old:
    """Written before engines told of variants."""

    name, version, computes = "old", 3, True

    def devices(self):
        return [Device("gpu:0", "a device", "GPU-1"), Device("gpu:1", "another")]

    def precisions(self, device, options):
        if device == "gpu:1":
            raise KeyError("gpu:1")
        return {"fp32": None, "fp16": "too old", "bf16": "too old"}


class Raising(NullEngine):
    def __init__(self):
        raise RuntimeError("the driver is\\n too old")


class Nowhere(NullEngine):
    version = None

    def devices(self):
        return []

    def precisions(self, device, options):
        return {"fp32": "no driver is loaded"}


class Varied(NullEngine):
    def variants(self):
        return [
            Variant({}),
            Variant({"provider": "gpu", "level": float("inf")}, reason="its library is absent", version="9"),
            Variant({"mode": "fast"}, version="2.1"),
        ]


class Strange(NullEngine):
    def devices(self):
        return ["cpu"]


class Leaving(NullEngine):
    def devices(self):
        raise SystemExit(3)


class Silent(NullEngine):
    def variants(self):
        return None
'''


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Engines of another distribution, declared by its metadata."""
    (tmp_path / "odd_engines.py").write_text(PLUGINS)
    (tmp_path / "torn_engines.py").write_text("def broken(:\n")
    info = tmp_path / "odd_engines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-engines\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        textwrap.dedent(
            """
            [inferometer.engines]
            odd_absent = engine_of_an_absent_library:Engine
            odd_misnamed = odd_engines:NoSuchEngine
            odd_nowhere = odd_engines:Nowhere
            odd_old = odd_engines:Old
            odd_raising = odd_engines:Raising
            odd_silent = odd_engines:Silent
            odd_leaving = odd_engines:Leaving
            odd_strange = odd_engines:Strange
            odd_torn = torn_engines:Engine
            odd_varied = odd_engines:Varied
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("odd_engines", None)


def facts(name: str) -> EngineFacts:
    (found,) = engine_facts(name)
    return found


@pytest.mark.usefixtures("plugins")
def test_every_declared_engine_is_told_of_whatever_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [name for name in registry.engine_names() if name.startswith("odd_")]
    monkeypatch.setattr(registry, "engine_names", lambda: ["null", *odd])
    found = {one.name: one for one in engine_facts()}
    assert list(found) == ["null", *odd]
    assert [name for name, one in found.items() if one.available] == [
        "null", "odd_old", "odd_silent", "odd_varied"
    ]  # fmt: skip
    for one in found.values():
        assert "\n" not in json.dumps(one.document(), allow_nan=False)


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "odd_absent",
            "engine 'odd_absent' needs the package 'engine_of_an_absent_library': "
            "pip install engine_of_an_absent_library",
        ),
        ("odd_raising", "the plug-in is broken: RuntimeError: the driver is too old"),
        ("odd_torn", "the plug-in is broken: SyntaxError: "),
        ("odd_misnamed", "the plug-in is broken: AttributeError: "),
        ("odd_leaving", "the plug-in is broken: SystemExit: 3"),
        ("odd_strange", "the plug-in is broken: AttributeError: 'str' object has no attribute 'name'"),
    ],
)
def test_a_broken_plug_in_is_one_line(name: str, reason: str) -> None:
    found = facts(name)
    assert found.reason is not None
    assert found.reason.startswith(reason)
    assert "\n" not in found.reason
    assert (found.available, found.variants) == (False, ())


@pytest.mark.usefixtures("plugins")
def test_an_engine_that_knows_of_no_variants_is_used_in_one_way() -> None:
    old = facts("odd_old")
    assert (old.version, old.computes, len(old.variants)) == ("3", True, 1)
    first, second = old.variants[0].devices
    assert (first.name, first.uuid) == ("gpu:0", "GPU-1")
    assert first.precisions == {"fp32": None, "fp16": "too old", "bf16": "too old"}
    assert (second.precisions, second.reason) == (None, "the plug-in is broken: KeyError: 'gpu:1'")
    assert [variant.options for variant in facts("odd_silent").variants] == [{}]


@pytest.mark.usefixtures("plugins")
def test_a_variant_that_is_not_there_has_its_reason_and_no_devices() -> None:
    usual, absent, fast = facts("odd_varied").variants
    assert (usual.available, absent.available, fast.available) == (True, False, True)
    assert (absent.reason, absent.version, absent.devices) == ("its library is absent", "9", ())
    assert fast.version == "2.1"
    told = facts("odd_varied").document()["variants"][1]["options"]
    assert told == {"provider": "gpu", "level": "inf"}


@pytest.mark.usefixtures("plugins")
def test_without_a_device_the_engines_own_reason_is_told() -> None:
    nowhere = facts("odd_nowhere")
    assert (nowhere.available, nowhere.variants[0].reason) == (False, "no driver is loaded")


def test_an_unknown_engine_comes_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'nul'; did you mean 'null'"):
        engine_facts("nul")
