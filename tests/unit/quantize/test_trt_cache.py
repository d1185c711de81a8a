import struct
from pathlib import Path

import numpy as np
import pytest

from inferometer.errors import CalibrationError, StoreError
from inferometer.quantize.graph import observed_tensors, prepare
from inferometer.quantize.insert import calibration_of, insert_qdq
from inferometer.quantize.scales import activation_params
from inferometer.quantize.table import CalibrationTable, TensorRange
from inferometer.quantize.trt_cache import cache_text, is_cache, read_cache, write_cache
from tests.unit.quantize.graphs import (
    NETS,
    SYMMETRIC,
    alexnet,
    googlenet,
    images,
    mobilenet,
    resnet,
    run,
    scheme,
    sqnr_db,
    table_of,
)

SHA = "ab" * 32


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def table(**thresholds: float) -> CalibrationTable:
    return CalibrationTable(
        method="kl", bins=2048, image_hashes=(), images=1, source="images", model_sha256=SHA,
        tensors={name: TensorRange(lo=-t, hi=t, threshold=t) for name, t in thresholds.items()},
    )  # fmt: skip


def full_cache(model: object, **changes: str) -> str:
    """A cache with every tensor that ``model`` needs, at scale 1/127 unless changed."""
    names = observed_tensors(prepare(model))  # type: ignore[arg-type]
    digits = dict.fromkeys(names, "3c010204") | changes
    return "TRT-8601-EntropyCalibration2\n" + "".join(f"{name}: {digits[name]}\n" for name in digits)


def test_the_form_is_tensorrts() -> None:
    # As TensorRT 10.3's MinMaxCalibration writes an input in [0, 1].
    assert cache_text(table(images=1.0)) == "TRT-8601-EntropyCalibration2\nimages: 3c010204\n"


def test_scales_that_tensorrt_wrote_are_read(tmp_path: Path) -> None:
    # Published: 4000889d in onnxruntime's source (2.008338), 3c92aa10 in NVIDIA's forum (0.0179033577).
    text = full_cache(alexnet(), input="4000889d", relu1="3c92aa10")
    found = read_cache(written(tmp_path / "c", text), prepare(alexnet()), SHA).tensors
    assert found["input"].threshold == pytest.approx(2.008338 * 127, rel=1e-6)
    assert found["relu1"].threshold == pytest.approx(0.0179033577 * 127, rel=1e-7)


def test_ranges_follow_from_the_thresholds_and_the_graph(tmp_path: Path) -> None:
    model = prepare(mobilenet())
    found = read_cache(written(tmp_path / "c", full_cache(mobilenet())), model, SHA)
    one = float(np.float32(1 / 127)) * 127
    assert found.tensors["input"] == TensorRange(lo=-one, hi=one, threshold=one)
    assert found.tensors["dw.relu6"] == TensorRange(lo=0, hi=one, threshold=one)
    assert found.tensors["add"].lo == -one
    assert tuple(found.tensors) == observed_tensors(model)


def test_what_the_table_says_of_itself(tmp_path: Path) -> None:
    path = written(tmp_path / "c", full_cache(resnet()).replace("EntropyCalibration2", "MinMaxCalibration"))
    found = read_cache(path, prepare(resnet()), SHA)
    assert (found.method, found.source, found.images, found.bins) == (
        "tensorrt:MinMaxCalibration", "cache", None, None,
    )  # fmt: skip
    assert (found.model_sha256, found.versions["tensorrt"], found.image_hashes) == (SHA, "8601", ())
    assert len(found.warnings) == 1
    assert "which images chose them is unknown" in found.warnings[0]
    assert CalibrationTable.model_validate_json(found.to_bytes()) == found
    with pytest.raises(CalibrationError, match="another model"):
        found.check_model("cd" * 32)


@pytest.mark.parametrize("name", sorted(NETS))
def test_there_and_back_is_exact_to_the_scale(name: str, tmp_path: Path) -> None:
    model = prepare(NETS[name]())
    first = table_of(NETS[name](), "kl")
    write_cache(first, tmp_path / "c", tensorrt="10.3.0")
    again = read_cache(tmp_path / "c", model, SHA)
    for tensor, found in first.tensors.items():
        symmetric = scheme(**SYMMETRIC)
        assert activation_params(again.tensors[tensor], symmetric) == activation_params(found, symmetric)
        assert again.tensors[tensor].threshold == pytest.approx(found.threshold, rel=2**-23)
        assert again.tensors[tensor].lo <= 0 if found.lo < 0 else again.tensors[tensor].lo == 0
    # A second time nothing rounds.
    assert cache_text(again, tensorrt="10.3.0") == (tmp_path / "c").read_text()
    assert (tmp_path / "c").read_text().startswith("TRT-100300-EntropyCalibration2\n")


@pytest.mark.parametrize("form", [{}, SYMMETRIC])
def test_a_model_quantized_from_a_cache_is_as_good(form: dict, tmp_path: Path) -> None:
    first = table_of(resnet(), "minmax")
    write_cache(first, tmp_path / "c")
    again = read_cache(tmp_path / "c", prepare(resnet()), SHA)
    direct, through = (insert_qdq(resnet(), one, scheme(**form)) for one in (first, again))
    exact = run(resnet(), images(16))
    loss = sqnr_db(exact, run(direct, images(16))) - sqnr_db(exact, run(through, images(16)))
    assert abs(loss) < 1.5
    note = calibration_of(through)
    assert note is not None
    assert (note.method, note.source, note.images) == ("tensorrt:MinMaxCalibration", "cache", None)


def test_tensors_that_pass_a_scale_through_are_written_with_a_model() -> None:
    model = prepare(googlenet())
    found = table_of(googlenet())
    assert "concat:" not in cache_text(found)
    lines = dict(line.rsplit(": ", 1) for line in cache_text(found, model).splitlines()[1:])
    assert set(lines) > set(found.tensors)
    # Concat and what it joins share the widest scale, as TensorRT's int8 wants it.
    assert lines["concat"] == lines["pool3"] == lines["one.relu"] == lines["three.relu"] == lines["proj.relu"]
    widest = max(found.tensors[name].threshold for name in ("one.relu", "three.relu", "proj.relu"))
    assert struct.unpack("!f", bytes.fromhex(lines["concat"]))[0] == np.float32(widest / 127)


def test_names_may_hold_colons_and_blanks(tmp_path: Path) -> None:
    text = full_cache(resnet()) + "(Unnamed Layer* 4) [Fully Connected]_output: 3d65992f\nx:0: 3d65992f\n"
    found = read_cache(written(tmp_path / "c", text), prepare(resnet()), SHA)
    needed = len(observed_tensors(prepare(resnet())))
    assert f"2 of the cache's {needed + 2} tensors need no range" in found.warnings[1]
    assert "x:0: 3c010204" in cache_text(table(**{"x:0": 1.0}))


@pytest.mark.parametrize("change", [("\n", "\r\n"), ("3c010204", "3C010204"), (": ", ":"), ("\n", "\n\n")])
def test_small_differences_of_form_do_not_matter(change: tuple[str, str], tmp_path: Path) -> None:
    plain = read_cache(written(tmp_path / "c", full_cache(resnet())), prepare(resnet()), SHA)
    text = full_cache(resnet()).replace(*change)
    assert read_cache(written(tmp_path / "c", text), prepare(resnet()), SHA) == plain


def test_a_tensor_that_was_always_zero(tmp_path: Path) -> None:
    # Written as the scale 1 of a quantized model; TensorRT's own 0 is read as what it means.
    assert cache_text(table(dead=0.0)).endswith("\ndead: 3f800000\n")
    for digits in ("00000000", "0", "80000000", "00000001"):
        text = full_cache(resnet(), input=digits)
        found = read_cache(written(tmp_path / "c", text), prepare(resnet()), SHA)
        assert found.tensors["input"] == TensorRange(lo=0, hi=0, threshold=0)
        assert "1 tensors have a scale of 0, 'input' for one" in found.warnings[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 is not like 'TRT-8601-EntropyCalibration2'"),
        ("input: 3c010204\n", "line 1 is not like"),
        ("TRT-8601-EntropyCalibration2\ninput 3c010204\n", "line 2 is not '<tensor>: <scale"),
        ("TRT-8601-EntropyCalibration2\ninput: 3c010204\nrelu1: 0.25\n", "line 3 is not"),
        ("TRT-8601-EntropyCalibration2\ninput: 3c0102045\n", "line 2 is not"),
        ("TRT-8601-EntropyCalibration2\n: 3c010204\n", "line 2 is not"),
        ("TRT-8601-EntropyCalibration2\ninput: 7f800000\n", "line 2: the scale of tensor 'input' is inf"),
        ("TRT-8601-EntropyCalibration2\ninput: 7fc00000\n", "line 2: .* is nan"),
        ("TRT-8601-EntropyCalibration2\ninput: bc010204\n", "line 2: .* is -0.007"),
        (
            "TRT-8601-EntropyCalibration2\ninput: 3c010204\n\ninput: 3c010205\n",
            "line 4: tensor 'input' has another scale above",
        ),
        ("TRT-8601-EntropyCalibration2\n", "has no tensor of this model .'input' for one"),
        ("TRT-8601-EntropyCalibration2\nother: 3c010204\n", "has no tensor of this model"),
        (
            "TRT-8601-EntropyCalibration2\ninput: 3c010204\nrelu2: 3c010204\n",
            "no scale for 3 of the 5 tensors that need one: 'relu1', ",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "cache.txt", text)
    with pytest.raises(CalibrationError, match=message) as error:
        read_cache(path, prepare(alexnet()), SHA)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_a_cache_is_told_from_a_table_by_its_beginning(tmp_path: Path) -> None:
    write_cache(table(a=1.0), tmp_path / "c")
    table(a=1.0).save(tmp_path / "t.json")
    assert [is_cache(tmp_path / name) for name in ("c", "t.json", "none", ".")] == [True, False, False, False]


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read: No such file"):
        read_cache(tmp_path / "none", prepare(alexnet()), SHA)
    (tmp_path / "b").write_bytes(b"TRT-8601-EntropyCalibration2\n\xff\xfe")
    with pytest.raises(CalibrationError, match="it is not text"):
        read_cache(tmp_path / "b", prepare(alexnet()), SHA)
    with pytest.raises(StoreError, match="could not write"):
        write_cache(table(a=1.0), tmp_path / "b" / "c")


@pytest.mark.parametrize(
    ("given", "tensorrt", "message"),
    [
        ({"a": 1.0}, "8.6", "'8.6' is not three numbers such as 8.6.1"),
        ({"a": 1.0}, "8.x.1", "is not three numbers"),
        ({"a\nb": 1.0}, "8.6.1", "cannot stand in a cache"),
        ({"": 1.0}, "8.6.1", "cannot stand in a cache"),
    ],
)
def test_what_a_cache_cannot_say_is_refused(given: dict, tensorrt: str, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        cache_text(table(**given), tensorrt=tensorrt)


def test_the_first_line_names_the_calibrator_that_reads_it() -> None:
    def first(method: str, **more: object) -> str:
        changed = table(a=1.0).model_copy(update={"method": method, **more})
        return cache_text(changed).splitlines()[0]

    assert first("minmax") == "TRT-8601-MinMaxCalibration"
    assert first("mse") == first("kl") == first("percentile") == "TRT-8601-EntropyCalibration2"
    assert first("tensorrt:LegacyCalibration") == "TRT-8601-LegacyCalibration"
