import hashlib
import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from inferometer.errors import CalibrationError
from inferometer.quantize.table import CalibrationTable, TensorRange


def table(**changes: object) -> CalibrationTable:
    given = {
        "method": "kl", "bins": 2048, "tensors": {"b": TensorRange(lo=-0.1, hi=1 / 3, threshold=0.3),
        "a": TensorRange(lo=0, hi=2, threshold=1e-30)}, "image_hashes": ("00", "11"), "images": 2,
        "source": "images", "model_sha256": "ab" * 32,
    }  # fmt: skip
    return CalibrationTable.model_validate({**given, **changes})


def test_saving_and_loading_gives_the_same_table(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    table(versions={"numpy": "2"}, seed=3, warnings=("few",)).save(path)
    assert CalibrationTable.load(path) == table(versions={"numpy": "2"}, seed=3, warnings=("few",))
    assert [item.name for item in tmp_path.iterdir()] == ["table.json"]
    assert json.loads(path.read_text())["tensors"]["b"] == {"lo": -0.1, "hi": 1 / 3, "threshold": 0.3}
    assert path.read_bytes() == table(versions={"numpy": "2"}, seed=3, warnings=("few",)).to_bytes()


def test_the_content_hash_is_of_the_ranges() -> None:
    plain = table().content_sha256()
    assert plain == table(versions={"numpy": "3"}, warnings=("few",), seed=9).content_sha256()
    assert plain == table(tensors=dict(reversed(table().tensors.items()))).content_sha256()
    assert len(plain) == 64
    changes: list[dict[str, object]] = [
        {"method": "minmax"},
        {"method": "percentile", "percentile": 99.9},
        {"method": "percentile", "percentile": 99.99},
        {"images": 3},
        {"image_hashes": ("00", "12")},
        {"model_sha256": "cd" * 32},
        {"tensors": {"a": TensorRange(lo=0, hi=2, threshold=1.1e-30)}},
        {"source": "synthetic"},
    ]
    assert len({plain, *(table(**change).content_sha256() for change in changes)}) == len(changes) + 1


def test_a_percentile_is_written_and_read(tmp_path: Path) -> None:
    given = table(method="percentile", percentile=99.9)
    given.save(tmp_path / "t.json")
    assert CalibrationTable.load(tmp_path / "t.json") == given
    assert json.loads(given.to_bytes())["percentile"] == 99.9
    assert "percentile" not in json.loads(table().to_bytes())


def test_a_table_of_the_first_schema_is_read_and_keeps_its_hash(tmp_path: Path) -> None:
    content = {
        "schema": 1, "method": "kl", "bins": 2048,
        "tensors": {"a": {"lo": 0.0, "hi": 2.0, "threshold": 1.5}}, "image_hashes": ["00"], "images": 1,
        "source": "images", "model_sha256": "ab" * 32,
    }  # fmt: skip
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    (tmp_path / "t.json").write_text(json.dumps(content | {"versions": {}, "seed": None, "warnings": []}))
    old = CalibrationTable.load(tmp_path / "t.json")
    assert (old.schema_version, old.percentile, old.tensors["a"].threshold) == (1, None, 1.5)
    assert old.content_sha256() == hashlib.sha256(text.encode()).hexdigest()


def test_a_table_from_a_cache_knows_no_images(tmp_path: Path) -> None:
    given = table(
        method="tensorrt:EntropyCalibration2", bins=None, image_hashes=(), images=None, source="cache"
    )
    given.save(tmp_path / "t.json")
    assert CalibrationTable.load(tmp_path / "t.json") == given


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"percentile": 99.9}, "a percentile belongs to the method of that name"),
        ({"method": "percentile"}, "a percentile belongs to the method of that name"),
        ({"images": None}, "the number of images is unknown for a cache"),
        ({"source": "cache"}, "the number of images is unknown for a cache"),
        ({"images": 0}, "greater than or equal to 1"),
        ({"method": "percentile", "percentile": 100.5}, "less than or equal to 100"),
    ],
)
def test_tables_that_contradict_themselves_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        table(**changes)


def test_another_model_is_refused() -> None:
    table().check_model("ab" * 32)
    with pytest.raises(CalibrationError, match=r"abababababab.*cdcdcdcdcdcd.*calibrate this model"):
        table().check_model("cd" * 32)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG\r\n", "not JSON"),
        (b"", "not JSON"),
        (b"[1, 2]", "no 'schema'"),
        (b'{"schema": 99}', "up to 2: upgrade"),
        (b'{"schema": 1, "method": "kl"}', "field required"),
        (table().to_bytes().replace(b'"threshold": 0.3', b'"threshold": NaN'), "finite"),
        (table().to_bytes().replace(b'"threshold": 0.3', b'"threshold": -1'), "tensors.b.threshold"),
        (table().to_bytes().replace(b'"lo": -0.1', b'"lo": 5'), "lo 5 is above hi"),
        (table().to_bytes().replace(b'"seed"', b'"sed"'), "sed: extra"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match=message) as error:
        CalibrationTable.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read: No such file"):
        CalibrationTable.load(tmp_path / "none.json")
    with pytest.raises(CalibrationError, match="cannot be written: No such file"):
        table().save(tmp_path / "none" / "t.json")


@pytest.mark.parametrize(
    ("lo", "hi", "threshold"),
    [(-1e300, 1.0, 1.0), (0.0, 1e39, 1e39), (0.0, 4.7, 0.0), (0.0, 0.0, 1.0), (-1.0, 2.0, 2.1)],
)
def test_ranges_that_no_tensor_has_are_refused(lo: float, hi: float, threshold: float) -> None:
    with pytest.raises(ValidationError):
        TensorRange(lo=lo, hi=hi, threshold=threshold)


def test_a_table_that_is_no_file_or_nested_too_deep_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(CalibrationError, match="no ordinary file"):
        CalibrationTable.load(tmp_path / "fifo")
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 200_000)
    with pytest.raises(CalibrationError, match="not a calibration table"):
        CalibrationTable.load(deep)
