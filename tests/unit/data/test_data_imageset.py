import hashlib

import numpy as np
import pytest

from inferometer.data.imageset import ImageEntry, check_labels, named, open_set, ordered, split_entries
from inferometer.errors import ConfigError, DataError


def labelled(folder, rows, header="file,class_index", make=True):
    """A folder with labels.csv; its images are never opened here, so a byte will do."""
    folder.mkdir(exist_ok=True)
    (folder / "labels.csv").write_text("\n".join([header, *rows]) + "\n")
    for row in rows if make else ():
        (folder / row.split(",")[0]).write_bytes(b"x")
    return folder


def classes(folder, content):
    for name, files in content.items():
        (folder / name).mkdir(parents=True)
        for file in files:
            (folder / name / file).write_bytes(b"x")
    return folder


def flat(folder, count, pattern="img{:04d}.png"):
    return labelled(folder, [f"{pattern.format(i)},{i // 10}" for i in range(count)])


def test_labels_csv(tmp_path):
    rows = ["n02,x,b.png,7", "", 'n01,"q, r",a.jpg,0']
    folder = labelled(tmp_path / "set", rows, header="\ufeffwnid,note, file ,class_index", make=False)
    for name in ("a.jpg", "b.png", "unlisted.png"):
        (folder / name).write_bytes(b"12345")
    images = open_set(str(folder))
    assert images.entries == (ImageEntry("a.jpg", 0), ImageEntry("b.png", 7))
    assert (images.layout, images.classes, images.ignored) == ("labels.csv", 8, 1)
    assert images.listing_sha256 == hashlib.sha256(b"a.jpg\x005\x000\nb.png\x005\x007\n").hexdigest()


def test_labels_csv_may_point_into_folders(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.png").write_bytes(b"x")
    labelled(tmp_path, ["./x//a.png,1"], make=False)
    assert open_set(tmp_path).entries == (ImageEntry("x/a.png", 1),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: wants one column file and one class_index"),
        (
            "name,label\na.png,0\n",
            "wants one column file and one class_index, comma-separated; the header is 'name,label'",
        ),
        ("file;class_index\na.png;0\n", "the header is 'file;class_index'"),
        ("file,class_index,file\na.png,0,a.png\n", "wants one column file"),
        ("file,class_index\n", "lists no image"),
        ("file,class_index\na.png,cat\n", "line 2: class_index 'cat' of a.png is no whole number"),
        ("file,class_index\na.png,-1\n", "class_index '-1'"),
        ("file,class_index\na.png,1.0\n", "class_index '1.0'"),
        ("file,class_index\na.png,\n", "class_index ''"),
        ("file,class_index\na.png,0\n\n./a.png,1\n", "line 4: a.png stands twice"),
        ("file,class_index\na.png\n", "line 2: wants 2 cells"),
        ("file,class_index\na,b.png,0\n", "line 2: wants 2 cells as in the header, with a file name"),
        ("file,class_index\n,0\n", "line 2: wants 2 cells"),
        ('file,class_index\n"a.png,0\n', "no comma-separated UTF-8 text"),
    ],
)
def test_bad_labels_csv(tmp_path, text, message):
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        open_set(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path / "labels.csv") in str(caught.value)


def test_labels_csv_that_is_no_text(tmp_path):
    (tmp_path / "labels.csv").write_bytes(b"file,class_index\n\xff\xfe.png,0\n")
    with pytest.raises(DataError, match="no comma-separated UTF-8 text"):
        open_set(tmp_path)


def test_missing_files_are_counted_and_the_first_named(tmp_path):
    labelled(tmp_path, [f"{i}.png,0" for i in range(6)], make=False)
    (tmp_path / "2.png").write_bytes(b"x")
    (tmp_path / "3.png").mkdir()
    with pytest.raises(DataError, match=r"names 5 missing files: 0\.png, 1\.png, 3\.png and 2 more"):
        open_set(tmp_path)


def test_class_folders(tmp_path):
    classes(
        tmp_path,
        {"dog": ["b.JPEG", "a.Png", "notes.txt"], "cat": ["z.webp", ".hidden.png"], ".git": ["x.png"]},
    )
    (tmp_path / "readme.md").write_text("x")
    images = open_set(tmp_path)
    assert images.entries == (
        ImageEntry("cat/z.webp", 0),
        ImageEntry("dog/a.Png", 1),
        ImageEntry("dog/b.JPEG", 1),
    )
    assert (images.layout, images.classes, images.ignored) == ("folders", 2, 3)


def test_integer_folders_are_the_class_indices(tmp_path):
    images = open_set(classes(tmp_path, {"10": ["a.png"], "2": ["a.png"]}))
    assert images.entries == (ImageEntry("10/a.png", 10), ImageEntry("2/a.png", 2))
    assert images.classes == 11


def test_two_folders_for_one_class(tmp_path):
    with pytest.raises(DataError, match="two folders stand for one class: 01, 1"):
        open_set(classes(tmp_path, {"1": ["a.png"], "01": ["b.png"]}))


def test_an_empty_class_keeps_its_number(tmp_path, caplog):
    images = open_set(classes(tmp_path, {"a": ["1.png"], "b": [], "c": ["1.png"]}))
    assert [entry.class_index for entry in images.entries] == [0, 2]
    assert images.classes == 3
    assert "1 class folders hold no image: b" in caplog.text


def test_links_are_followed(tmp_path):
    real = classes(tmp_path / "real", {"a": ["1.png"]})
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "k").symlink_to(real / "a")
    assert open_set(tmp_path / "set").entries == (ImageEntry("k/1.png", 0),)


def test_nothing_to_open(tmp_path, caplog):
    def message(path):
        with pytest.raises(DataError) as caught:
            open_set(path)
        return str(caught.value)

    assert "does not exist: give a folder with labels.csv" in message(tmp_path / "absent")
    (tmp_path / "file.jpg").write_bytes(b"x")
    assert "is a file: give a folder" in message(tmp_path / "file.jpg")
    assert "add labels.csv" in message(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "looked for labels.csv and for one folder per class" in message(tmp_path / "empty")
    deep = classes(tmp_path / "deep", {"train/cat": ["1.png"], "test/cat": ["1.png"]})
    assert f"is {deep / 'test'} the set?" in message(deep)
    assert not caplog.records  # a warning would be a second line beside the error


def test_the_listing_sees_names_sizes_and_labels(tmp_path):
    def digest(rows, content=b"x"):
        folder = labelled(tmp_path / "set", rows)
        (folder / "a.png").write_bytes(content)
        return open_set(folder).listing_sha256

    base = digest(["a.png,0", "b.png,1"])
    assert digest(["b.png,1", "a.png,0"]) == base
    others = {
        digest(["a.png,0", "b.png,2"]),
        digest(["a.png,0", "c.png,1"]),
        digest(["a.png,0", "b.png,1"], b"xy"),
    }
    assert len({base, *others}) == 4


def test_a_label_outside_the_model(tmp_path):
    images = open_set(labelled(tmp_path, ["a.png,9", "b.png,10"]))
    check_labels(images, 11, "m.onnx")
    with pytest.raises(
        DataError, match=r"b\.png has the label 10, outside the classes of m\.onnx \(0\.\.9\)"
    ):
        check_labels(images, 10, "m.onnx")


def test_order_is_a_seeded_permutation(tmp_path):
    images = open_set(flat(tmp_path, 40))
    places = np.random.Generator(np.random.PCG64(5)).permutation(40)
    assert ordered(images, 5) == tuple(images.entries[place] for place in places)
    assert ordered(images, 5) != ordered(images, 6)
    assert sorted(entry.file for entry in ordered(images, 5)) == [entry.file for entry in images.entries]


def test_a_flat_ilsvrc_folder_keeps_its_order(tmp_path):
    images = open_set(flat(tmp_path, 12, "ILSVRC2012_val_{:08d}.JPEG"))
    assert ordered(images, 5) == images.entries
    first = split_entries(images, 4, "first", 0)
    assert first.calibration == images.entries[:4]
    assert first.evaluation == images.entries[4:]
    assert first.order_kind == "file-name order"
    even = split_entries(images, 4, "even", 0)
    assert even.calibration == images.entries[0:8:2]
    assert even.order_kind == "even positions in file-name order; file-name order"


def test_split_first_follows_the_order(tmp_path):
    images = open_set(flat(tmp_path, 40))
    split = split_entries(images, 10, "first", 3)
    assert split.calibration == ordered(images, 3)[:10]
    assert split.evaluation == ordered(images, 3)[10:]
    assert split.order_kind == "seeded permutation (PCG64, seed 3)"
    # Ten images of one class come first in the folder; the calibration must not consist of them.
    assert len({entry.class_index for entry in split.calibration}) > 1


def test_split_even_takes_every_other_image_by_name(tmp_path):
    images = open_set(flat(tmp_path, 41))
    whole = split_entries(images, 1250, "even", 3)
    assert set(whole.calibration) == set(images.entries[::2])
    assert set(whole.evaluation) == set(images.entries[1::2])
    some = split_entries(images, 5, "even", 3)
    assert len(some.calibration) == 5
    assert set(some.calibration) <= set(images.entries[::2])
    assert some.calibration == tuple(e for e in ordered(images, 3) if e in set(images.entries[::2]))[:5]


@pytest.mark.parametrize("how", ["first", "even"])
@pytest.mark.parametrize("count", [2, 3, 7, 20])
@pytest.mark.parametrize("images", [1, 2, 3, 10, 100])
def test_splits_never_overlap_and_lose_nothing(tmp_path, how, count, images):
    whole = open_set(flat(tmp_path, count))
    split = split_entries(whole, images, how, 1)
    assert set(split.calibration).isdisjoint(split.evaluation)
    assert sorted(split.calibration + split.evaluation, key=lambda e: e.file) == list(whole.entries)
    half = count // 2 if how == "first" else (count + 1) // 2
    assert len(split.calibration) == min(images, half)
    assert split.evaluation


def test_split_by_a_file(tmp_path):
    images = open_set(flat(tmp_path / "set", 10))
    listing = tmp_path / "calibrate.txt"
    listing.write_text("# ours\nimg0003.png\n\n  img0007.png  \n./img0001.png\n")
    split = split_entries(images, 1, str(listing), 0)
    assert {entry.file for entry in split.calibration} == {"img0001.png", "img0003.png", "img0007.png"}
    assert len(split.evaluation) == 7
    assert split.order_kind.startswith("listed in a file; seeded permutation")

    def message(text):
        listing.write_text(text)
        with pytest.raises(DataError) as caught:
            split_entries(images, 1, str(listing), 0)
        return str(caught.value)

    assert "has no image a, b, c and 2 more" in message("a\nb\nc\nd\ne\nimg0001.png\n")
    assert "img0001.png twice" in message("img0001.png\nimg0001.png\n")
    assert "names no image" in message("# nothing\n")
    listing.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8"):
        split_entries(images, 1, str(listing), 0)


def test_bad_splits(tmp_path):
    images = open_set(flat(tmp_path, 1))
    with pytest.raises(DataError, match="one image cannot be split"):
        split_entries(images, 1, "first", 0)
    with pytest.raises(ConfigError, match=r"'evn' is neither .* did you mean 'even'\?"):
        split_entries(images, 1, "evn", 0)
    with pytest.raises(ConfigError, match="wants 1 or more"):
        split_entries(images, 0, "first", 0)


def test_named_keeps_the_order_asked_for(tmp_path):
    images = open_set(flat(tmp_path, 3))
    assert [e.file for e in named(images, ["img0002.png", "img0000.png"])] == ["img0002.png", "img0000.png"]
