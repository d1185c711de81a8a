import pytest

from inferometer.quantize.graph import observed_tensors, prepare
from inferometer.trials.forward import ForwardPlan, image_bytes, plan_forward
from tests.unit.quantize.graphs import Net

# input 3x24x24, conv 16x24x24 (its output is fused away and is not observed), relu 16x24x24, logits 10
OBSERVED = 4 * (16 * 24 * 24 + 16)
EACH = OBSERVED + 3 * 4 * 16 * 24 * 24


def model():  # type: ignore[no-untyped-def]
    net = Net()
    x = net.relu(net.conv("input", "stem", 3, 16), "stem.relu")
    net.gemm(net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat"), "logits", 16, 10)
    return prepare(net.model())


def test_an_image_takes_its_observed_tensors_and_three_of_the_largest() -> None:
    assert image_bytes(model(), ("input", "stem.relu", "gap")) == EACH


@pytest.mark.parametrize(
    ("budget", "cores", "expected"),
    [
        (1, 4, ForwardPlan(1, 1)),
        (EACH, 4, ForwardPlan(1, 1)),
        (3 * EACH, 4, ForwardPlan(1, 3)),
        (8 * EACH + EACH // 2, 4, ForwardPlan(2, 4)),
        (1000 * EACH, 2, ForwardPlan(4, 2)),
    ],
)
def test_cores_come_first_and_then_the_batch(budget: int, cores: int, expected: ForwardPlan) -> None:
    assert plan_forward(model(), ("stem.relu", "gap"), budget, cores) == expected


def test_what_is_observed_is_what_counts() -> None:
    prepared = model()
    assert image_bytes(prepared, observed_tensors(prepared)) > image_bytes(prepared, ())
