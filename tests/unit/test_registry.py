import pytest

from inferometer import registry
from inferometer.errors import ConfigError, MissingExtra


def test_the_built_in_engines_are_declared() -> None:
    assert {"null", "onnxruntime"} <= set(registry.engine_names())


def test_an_unknown_engine_comes_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'onnxruntme'; did you mean 'onnxruntime'"):
        registry.engine("onnxruntme")


@pytest.mark.usefixtures("faulty")
def test_a_third_partys_engine_is_found_by_its_metadata_alone() -> None:
    assert registry.engine("faulty").version == "1"


@pytest.mark.usefixtures("faulty")
def test_a_missing_library_is_named() -> None:
    with pytest.raises(MissingExtra, match="engine 'absent' needs the package 'engine_of_an_absent_library'"):
        registry.engine("absent")


def test_the_extra_that_brings_a_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "inferometer.engines.onnxruntime.engine", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'inferometer\[cpu\]'"):
        registry.engine("onnxruntime")
