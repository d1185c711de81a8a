import json
from pathlib import Path

import pytest

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
        {"images": 3},
        {"image_hashes": ("00", "12")},
        {"model_sha256": "cd" * 32},
        {"tensors": {"a": TensorRange(lo=0, hi=2, threshold=1.1e-30)}},
        {"source": "synthetic"},
    ]
    for change in changes:
        assert table(**change).content_sha256() != plain


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
        (b'{"schema": 99}', "up to 1: upgrade"),
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
