import gc
import threading
import tracemalloc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from inferometer.errors import CalibrationError
from inferometer.quantize.calibrate import CalibrationBatch, StageTimes, calibrate
from inferometer.quantize.histogram import count_magnitudes
from inferometer.quantize.kl import kl_threshold
from inferometer.quantize.table import CalibrationTable, TensorRange
from tests.unit.quantize.graphs import FakeSession, batches_of

DATA = np.random.default_rng(11).laplace(size=(30, 50)).astype(np.float32)


def double_and_relu(feeds: Mapping[str, Any]) -> dict[str, Any]:
    x = feeds["input"]
    return {"double": 2 * x, "relu": np.maximum(x, 0), "folded": x.reshape(-1, 5), "zero": np.zeros_like(x)}


def table_from(
    batch: int = 8,
    order: list[int] | None = None,
    method: str = "kl",
    compute: Any = double_and_relu,
    **given: Any,
) -> CalibrationTable:
    tensors = given.pop("tensors", ("input", "double", "relu"))
    session = FakeSession(batch, compute, ["double", "relu", "folded", "zero"])
    return calibrate(
        session, given.pop("batches", batches_of(DATA, batch, order)), tensors, method=method,
        model_sha256="ab" * 32, source="images", **given,
    )  # fmt: skip


def test_ranges_and_thresholds_are_those_of_all_values_at_once() -> None:
    found = table_from().tensors
    for name, values in {"input": DATA, "double": 2 * DATA, "relu": np.maximum(DATA, 0)}.items():
        top = float(np.abs(values).max())
        expected = kl_threshold(count_magnitudes(values.reshape(-1), top, 2048)[:-1], top).threshold
        assert found[name] == TensorRange(lo=float(values.min()), hi=float(values.max()), threshold=expected)


@pytest.mark.parametrize("method", ["kl", "minmax"])
def test_batches_padding_and_order_do_not_matter(method: str) -> None:
    plain = table_from(30, method=method)
    shuffled = np.random.default_rng(0).permutation(30).tolist()
    for batch, order in [(1, None), (7, None), (8, shuffled), (25, shuffled)]:
        other = table_from(batch, order, method)
        assert other == plain
        assert other.content_sha256() == plain.content_sha256()


def test_rows_that_only_fill_the_batch_do_not_count() -> None:
    def read() -> Iterator[CalibrationBatch]:
        rows = DATA[:8].copy()
        rows[3:] = 1e6
        yield CalibrationBatch({"input": rows}, 3, ("a", "b", "c"))

    found = table_from(batches=read, tensors=("input", "folded"))
    assert found.images == 3
    assert found.tensors["input"].hi == found.tensors["folded"].hi == float(DATA[:3].max())


def test_a_tensor_without_the_batch_in_front_cannot_lose_the_filling() -> None:
    with pytest.raises(CalibrationError, match=r"'double'.*\[50, 8\].*multiple of 8"):
        table_from(8, compute=lambda feeds: {"double": feeds["input"].T}, tensors=("double",))
    # A whole number of batches needs no filling.
    assert (
        table_from(10, compute=lambda feeds: {"double": feeds["input"].T}, tensors=("double",)).images == 30
    )


def test_what_the_table_says() -> None:
    table = table_from(seed=4, versions={"onnxruntime": "1.2.3"})
    assert (table.method, table.bins, table.images, table.source, table.seed) == ("kl", 2048, 30, "images", 4)
    assert table.image_hashes == tuple(f"{row:064x}" for row in range(30))
    assert table.versions["onnxruntime"] == "1.2.3"
    assert set(table.versions) == {"inferometer", "numpy", "onnxruntime"}
    assert list(table.tensors) == ["input", "double", "relu"]


def test_minmax_needs_one_pass_and_saturates_nothing() -> None:
    calls, done = [], []

    def read() -> Iterator[CalibrationBatch]:
        calls.append(1)
        yield from batches_of(DATA, 8)()

    table = table_from(batches=read, method="minmax", on_progress=done.append)
    assert len(calls) == 1
    assert table.bins is None
    assert table.tensors["input"].threshold == float(np.abs(DATA).max())
    assert done == [16, 32, 48, 60]


def test_progress_runs_over_both_passes() -> None:
    done: list[int] = []
    table_from(on_progress=done.append)
    assert done == [8, 16, 24, 30, 38, 46, 54, 60]


def test_few_images_and_dead_tensors_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    table = table_from(tensors=("input", "zero"))
    assert table.tensors["zero"] == TensorRange(lo=0, hi=0, threshold=0)
    assert len(table.warnings) == 2
    assert "30 images" in table.warnings[0]
    assert "'zero'" in table.warnings[1]
    assert [record.message for record in caplog.records] == list(table.warnings)


def test_a_constant_tensor_keeps_its_value() -> None:
    table = table_from(compute=lambda feeds: {"double": np.full((8, 4), -3, np.float32)}, tensors=("double",))
    assert table.tensors["double"] == TensorRange(lo=-3, hi=-3, threshold=3)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["double", "folded"])
def test_values_that_are_not_finite_name_tensor_and_image(bad: float, name: str) -> None:
    broken = DATA.copy()
    broken[19, 7] = bad  # position 3 of batch 2
    with pytest.raises(CalibrationError, match=rf"'{name}'.*image {19:064x} \(batch 2, position 3\)"):
        table_from(batches=batches_of(broken, 8), tensors=(name,), compute=double_and_relu)
    unhashed = [CalibrationBatch({"input": broken[16:24]}, 8, ())]
    with pytest.raises(CalibrationError, match=r"row 3 \(batch 0"):
        table_from(batches=lambda: iter(unhashed), tensors=(name,))


def test_passes_that_differ_are_an_error() -> None:
    orders = iter([list(range(30)), list(range(29))])
    with pytest.raises(CalibrationError, match="29 after 30"):
        table_from(batches=lambda: batches_of(DATA, 8, next(orders))())
    scales = iter([1.0] * 4 + [1.5] * 4)
    with pytest.raises(CalibrationError, match=r"'double'.*second pass met a value outside"):
        table_from(compute=lambda feeds: {"double": feeds["input"] * next(scales)}, tensors=("double",))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batches": lambda: iter(())}, "no image"),
        ({"tensors": ("nowhere",)}, "does not give tensor 'nowhere'"),
        ({"tensors": ()}, "no tensor"),
        ({"method": "entropy"}, "unknown calibration method 'entropy'"),
        (
            {"compute": lambda feeds: {"double": np.empty((8, 0), np.float32)}, "tensors": ("double",)},
            "was empty",
        ),
    ],
)
def test_bad_input_is_one_clear_line(given: dict, message: str) -> None:
    with pytest.raises(CalibrationError, match=message) as error:
        table_from(**given)
    assert "\n" not in str(error.value)


def test_memory_does_not_grow_with_the_images() -> None:
    alive: list[weakref.ref[Any]] = []

    def peak(batches: int) -> int:
        def read() -> Iterator[CalibrationBatch]:
            for number in range(batches):
                values = np.random.default_rng(number % 3).standard_normal((16, 10_000)).astype(np.float32)
                alive.append(weakref.ref(values))
                yield CalibrationBatch({"input": values}, 16, ())

        gc.collect()
        tracemalloc.start()
        table_from(16, batches=read)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    few, many = peak(3), peak(30)
    assert many < 1.05 * few
    gc.collect()
    assert not [one for one in alive if one() is not None]


class Slots(FakeSession):
    """Several slots that wait for each other, so that all threads are at work at once."""

    def __init__(self, in_flight: int) -> None:
        super().__init__(6, double_and_relu, ["double", "relu"])
        self.in_flight = in_flight
        self.given: list[dict[str, Any]] = [{} for _ in range(in_flight)]
        self.met = threading.Barrier(in_flight, timeout=10)

    def _prepare(self, slot: int, feeds: Mapping[str, Any]) -> None:
        self.given[slot] = dict(feeds)
        self.met.wait()

    def view(self, slot: int) -> dict[str, Any]:
        return double_and_relu(self.given[slot])


def test_the_number_of_threads_does_not_matter() -> None:
    one = table_from(6)
    for slots in (1, 5):
        times = StageTimes()
        table = calibrate(
            Slots(slots),
            batches_of(DATA, 6),
            ("input", "double", "relu"),
            method="kl",
            model_sha256="ab" * 32,
            source="images",
            times=times,
        )
        assert table == one
        assert times.threads == slots
        assert set(times.seconds) == {"decode", "forward", "statistics", "search"}
        assert times.wall_s > 0


def test_batches_may_be_made_in_the_threads_and_may_come_to_nothing() -> None:
    def read() -> Iterator[Any]:
        for batch in batches_of(DATA, 6)():
            yield lambda batch=batch: batch
            yield lambda: None

    assert table_from(6, batches=read) == table_from(6)


def test_a_fault_in_one_thread_ends_the_pass_and_is_told() -> None:
    broken = DATA.copy()
    broken[13] = np.nan  # in batch 2
    with pytest.raises(CalibrationError, match=r"'input' is NaN or infinite .*batch 2, position 1"):
        calibrate(
            Slots(5),
            batches_of(broken, 6),
            ("input", "double"),
            method="kl",
            model_sha256="ab" * 32,
            source="images",
        )
    assert not [one for one in threading.enumerate() if one.name.startswith("inferometer-calibration")]
