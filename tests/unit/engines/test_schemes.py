from collections.abc import Callable

import pytest

from inferometer import registry
from inferometer.contracts import QdqScheme
from inferometer.engines import schemes
from inferometer.environment.cpu import cpu_facts

ENGINES = ["onnxruntime", "openvino", "tensorrt", "tensorrt_rtx", "torch"]
BESIDE_UINT8 = [schemes.onnxruntime, schemes.openvino]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_registry_gives_the_form_that_is_written_here(engine: str) -> None:
    found = registry.qdq_scheme(engine, None, {})
    assert found == getattr(schemes, engine)("cpu", {})
    assert found.weight_per_channel


@pytest.mark.parametrize("engine", ["tensorrt", "tensorrt_rtx", "torch"])
def test_gpus_want_signed_symmetric_integers_and_float_biases(engine: str) -> None:
    found = registry.qdq_scheme(engine, "cuda:0", {})
    assert found is not None
    assert (found.activation_dtype, found.activation_symmetric, found.weight_bits, found.bias) == (
        "int8",
        True,
        8,
        "float",
    )
    assert found.reason is None


@pytest.mark.parametrize("form", BESIDE_UINT8)
@pytest.mark.parametrize(
    ("architecture", "dot", "bits"), [("x86_64", True, 8), ("x86_64", False, 7), ("aarch64", False, 8)]
)
def test_weights_have_seven_bits_exactly_where_products_saturate(
    form: Callable[..., QdqScheme],
    architecture: str,
    dot: bool,
    bits: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, reasons = cpu_facts()
    facts = real.model_copy(update={"architecture": architecture, "int8_dot": dot})
    monkeypatch.setattr(schemes, "cpu_facts", lambda: (facts, reasons))
    found = form("cpu", {})
    assert found.weight_bits == bits
    assert (found.reason is not None) == (bits == 7)
    assert (found.activation_dtype, found.activation_symmetric) == ("uint8", False)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_gives_floats_is_quantized_in_the_first_place(engine: str) -> None:
    found = registry.qdq_scheme(engine, None, {})
    assert found is not None
    assert found.float_output_ops <= found.quantized_ops
    assert not found.quantized_ops & found.passthrough_ops
    assert not found.fused_sum or "Conv" in found.float_output_ops
