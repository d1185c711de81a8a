import pytest
from tests.unit.data.sets import FIRST_IDS, files, indices, refusal, val

from inferometer.data.ilsvrc2012 import FIRST_CLASSES, IMAGES, wnids
from inferometer.data.imageset import check_labels, check_unchanged, named, open_set, ordered
from inferometer.errors import DataError

GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"


def lines(values):
    return "".join(f"{value}\n" for value in values)


def caffe(count):
    return lines(f"{val(n)} {index}" for n, index in enumerate(FIRST_CLASSES[:count], 1))


def test_some_wnid_folders_have_the_numbers_of_all_1000(tmp_path, caplog):
    images = open_set(files(tmp_path, ["n15075141/a.JPEG", "n01443537/b.JPEG", "n01751748/c.JPEG"]))
    assert indices(images) == {"n01443537/b.JPEG": 1, "n01751748/c.JPEG": 65, "n15075141/a.JPEG": 999}
    assert (images.layout, images.numbering, images.classes) == ("wnid folders", "ilsvrc2012", 1000)
    assert not caplog.records


def test_wnids_beyond_ilsvrc2012_are_sorted_and_warned_of(tmp_path, caplog):
    images = open_set(files(tmp_path, ["n01443537/b.JPEG", "n00000001/c.JPEG", "n00000002_x/c.JPEG"]))
    assert indices(images) == {"n00000001/c.JPEG": 0, "n00000002_x/c.JPEG": 1, "n01443537/b.JPEG": 2}
    assert (images.layout, images.numbering, images.classes) == ("wnid folders", "own", 3)
    assert "2 of 3 folders are no classes of ILSVRC2012 (n00000001, n00000002_x): numbered 0" in caplog.text


def test_index_folders_and_names_say_what_they_are(tmp_path):
    numbers = open_set(files(tmp_path / "a", ["7/x.png"]))
    assert (numbers.layout, numbers.numbering, numbers.classes) == ("index folders", "own", 8)
    assert open_set(files(tmp_path / "b", ["cat/x.png", "dog/x.png"])).numbering == "own"


@pytest.mark.parametrize("name", ["classes.txt", "synset_words.txt", "LOC_synset_mapping.txt", "synsets.txt"])
def test_a_list_of_classes_fixes_the_order(tmp_path, name):
    files(tmp_path, ["cat/1.png", "dog/1.png"])
    files(tmp_path, {name: "eel\ndog\n\ncat\n"})
    images = open_set(tmp_path)
    assert indices(images) == {"cat/1.png": 2, "dog/1.png": 1}
    assert (images.layout, images.classes, images.numbering) == ("folders", 3, "own")


def test_a_list_of_wnids_fixes_the_order_too(tmp_path):
    files(tmp_path, ["n01443537/1.png", "n01440764/1.png"])
    words = {"n01443537": "goldfish, Carassius auratus", "n01440764": "tench, Tinca tinca"}
    files(tmp_path, {"synset_words.txt": lines(f"{wnid} {word}" for wnid, word in words.items())})
    images = open_set(tmp_path)
    assert indices(images) == {"n01440764/1.png": 1, "n01443537/1.png": 0}
    assert (images.classes, images.numbering) == (2, "own")
    files(tmp_path, {"synset_words.txt": lines(f"{wnid} word" for wnid in wnids())})
    assert (open_set(tmp_path).classes, open_set(tmp_path).numbering) == (1000, "ilsvrc2012")


def test_a_list_that_leaves_out_a_class_is_refused_but_for_wnids(tmp_path):
    named = files(tmp_path / "a", ["cat/1.png", "dog/1.png"])
    files(named, {"classes.txt": "cat\n"})
    assert "classes.txt: does not list the class folders dog: add them, or rename" in refusal(named)
    files(named, {"classes.txt": "cat\ndog\ncat\n"})
    assert "lists the class cat twice" in refusal(named)
    files(named, {"classes.txt": "\n"})
    assert "lists no class" in refusal(named)
    synsets = files(tmp_path / "b", ["n01443537/1.png"])
    files(synsets, {"classes.txt": "tench\ngoldfish\n"})
    assert indices(open_set(synsets)) == {"n01443537/1.png": 1}


@pytest.mark.parametrize("inside", ["set/images", "train", "a/b/c/val"])
def test_folders_that_lie_alone_are_descended_into(tmp_path, inside):
    folder = files(tmp_path, [f"{inside}/cat/1.png", f"{inside}/dog/1.png"])
    images = open_set(folder)
    assert indices(images) == {"cat/1.png": 0, "dog/1.png": 1}
    assert images.root == tmp_path / inside
    assert images.listing_sha256 == open_set(tmp_path / inside).listing_sha256
    assert images.source.read("dog/1.png") == b"x" * len(f"{inside}/dog/1.png")


@pytest.mark.parametrize("deeper", ["", "cat/"])
def test_parts_of_a_data_set_side_by_side_are_refused(tmp_path, deeper):
    files(tmp_path, [f"train/{deeper}1.png", f"val/{deeper}1.png"])
    assert f"is {tmp_path / 'train'} the set? Or {tmp_path / 'val'}?" in refusal(tmp_path)


def test_a_lone_folder_of_images_is_no_class(tmp_path):
    files(tmp_path, ["images/1.png"])
    assert f"{tmp_path / 'images'}: the images lie unlabelled in it: add labels.csv" in refusal(tmp_path)
    assert "--labels FILE" in refusal(tmp_path)
    files(tmp_path, {"all.tsv": "filename\tlabel\nimages/1.png\t3\n"})
    assert indices(open_set(tmp_path)) == {"1.png": 3}


def test_the_only_folder_of_images_among_others_is_no_class_either(tmp_path):
    files(tmp_path, ["images/1.png"])
    files(tmp_path, {"annotations/1.xml": "x"})
    assert f"{tmp_path / 'images'}: the images lie unlabelled in it" in refusal(tmp_path)
    files(tmp_path, {"annotations/2.png": "x"})
    assert indices(open_set(tmp_path)) == {"annotations/2.png": 0, "images/1.png": 1}


def test_archives_within_a_folder_are_named(tmp_path):
    files(tmp_path, {"n01440764.tar": "x", "n01443537.tar": "x"})
    assert "it holds archives (n01440764.tar, n01443537.tar): unpack them" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("val.txt", caffe(3)),
        ("val_map.txt", lines(f"{val(n)} {wnids()[FIRST_CLASSES[n - 1]]}" for n in (1, 2, 3))),
        ("val.txt", lines(f"/data/val/{val(n)}\t{FIRST_CLASSES[n - 1]}" for n in (1, 2, 3))),
        (
            "LOC_val_solution.csv",
            "ImageId,PredictionString\n"
            + lines(
                f"{val(n, '')},{wnids()[FIRST_CLASSES[n - 1]]} 85 1 499 272 n01440764 1 2 3 4 "
                for n in (1, 2, 3)
            ),
        ),
        (GROUND_TRUTH, lines(FIRST_IDS[:3])),
    ],
)
@pytest.mark.parametrize("place", ["val", ".", "data", "val/data", "ILSVRC2012_devkit_t12/data"])
def test_flat_ilsvrc_images_are_labelled_by_what_lies_with_them(tmp_path, name, text, place):
    flat = files(tmp_path / "val", [val(n) for n in (1, 2, 3)])
    files(tmp_path / place, {name: text})
    images = open_set(flat)
    assert list(indices(images).items()) == [(val(n), FIRST_CLASSES[n - 1]) for n in (1, 2, 3)]
    assert (images.numbering, images.classes, images.ignored) == ("ilsvrc2012", 1000, 0)
    expected = {"val.txt": "list", "val_map.txt": "list", GROUND_TRUTH: "devkit"}
    assert images.layout == expected.get(name, "table")
    assert ordered(images, 7) == images.entries
    assert open_set(tmp_path).listing_sha256 == images.listing_sha256


def test_parts_of_the_validation_set_have_the_labels_of_their_numbers(tmp_path):
    flat = files(tmp_path / "val", [val(3), val(11)])
    files(tmp_path, {"val.txt": caffe(11)})
    assert indices(open_set(flat)) == {val(3): 230, val(11): 109}
    truth = FIRST_IDS + [1] * (IMAGES - len(FIRST_IDS))
    by_id = tmp_path / "truth.txt"
    by_id.write_text(lines(truth) + "\n")
    assert indices(open_set(flat, by_id)) == {val(3): 230, val(11): 109}
    assert open_set(flat, by_id).layout == "devkit"


def test_images_without_a_line_are_left_out_and_counted(tmp_path):
    files(tmp_path, [val(1), val(2)])
    files(tmp_path, {"val.txt": caffe(1)})
    images = open_set(tmp_path)
    assert (indices(images), images.ignored) == ({val(1): 65}, 1)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (FIRST_IDS[:2], "has 2 lines for 3 images: the ground truth has 50000"),
        ([*FIRST_IDS[:2], 0], "line 3: 0 is no ILSVRC2012_ID, which are 1 to 1000"),
        ([*FIRST_IDS[:2], 1001], "line 3: 1001 is no ILSVRC2012_ID"),
        ([66, 971, 231], "line 1: 66 is not the ILSVRC2012_ID of image 1, which shows n01751748"),
        ([490, "x", 3], "line 2: wants one number, as in line 1; got 'x'"),
        ([490, "", 3], "line 2: wants one number, as in line 1; got ''"),
        ([490, -1, 3], "line 2: wants one number"),
    ],
)
def test_another_ground_truth_is_refused(tmp_path, ids, message):
    files(tmp_path, [val(n) for n in (1, 2, 3)])
    files(tmp_path, {GROUND_TRUTH: lines(ids)})
    assert message in refusal(tmp_path)
    assert str(tmp_path / GROUND_TRUTH) in refusal(tmp_path)


def test_a_ground_truth_is_for_images_of_ilsvrc2012_alone(tmp_path):
    files(tmp_path, [val(1), "cat.png"])
    truth = files(tmp_path / "kit", {"truth.txt": lines(FIRST_IDS[:2])}) / "truth.txt"
    assert f"{tmp_path} holds cat.png: give lines of file name and label" in refusal(tmp_path, truth)
    (tmp_path / "cat.png").unlink()
    (tmp_path / val(1)).rename(tmp_path / val(50_001))
    truth.write_text(lines(FIRST_IDS + [1] * (IMAGES - len(FIRST_IDS))))
    assert f"has 50000 lines, none for {val(50_001)}" in refusal(tmp_path, truth)


@pytest.mark.parametrize("shift", [1, -1, 400])
def test_a_list_that_counts_otherwise_is_refused(tmp_path, shift):
    files(tmp_path, [val(1)])
    files(tmp_path, {"val.txt": f"{val(1)} {65 + shift}\n"})
    message = refusal(tmp_path)
    assert f"line 1: gives {val(1)} the class {65 + shift}, which is 65 (n01751748)" in message
    assert "count otherwise" in message


def test_a_list_with_an_index_beyond_999_is_refused(tmp_path):
    files(tmp_path, [val(100)])
    files(tmp_path, {"val.txt": f"{val(100)} 1000\n"})
    assert f"line 1: gives {val(100)} the class 1000, among 0 to 999" in refusal(tmp_path)


def test_labels_csv_wins_over_all_and_a_given_file_over_that(tmp_path):
    files(tmp_path, [val(1), "n01440764/a.png"])
    files(
        tmp_path, {"labels.csv": f"file,class_index\n{val(1)},65\nn01440764/a.png,7\n", "val.txt": caffe(1)}
    )
    images = open_set(tmp_path)
    assert (images.layout, images.numbering) == ("labels.csv", "own")
    assert indices(images) == {val(1): 65, "n01440764/a.png": 7}
    assert indices(open_set(tmp_path, tmp_path / "val.txt")) == {val(1): 65}
    (tmp_path / "labels.csv").unlink()
    assert open_set(tmp_path).layout == "list"
    (tmp_path / "val.txt").unlink()
    assert open_set(tmp_path).layout == "wnid folders"


def test_hidden_files_and_those_of_macos_are_passed_over(tmp_path):
    files(tmp_path, ["cat/1.png", "cat/._1.png", "__MACOSX/cat/1.png", "__MACOSX/1.png", ".x/1.png"])
    images = open_set(tmp_path)
    assert (indices(images), images.ignored) == ({"cat/1.png": 0}, 1)


def test_1001_classes_want_a_word_on_the_offset(tmp_path):
    images = open_set(files(tmp_path / "a", ["n01443537/1.png"]))
    with pytest.raises(DataError, match=r"m has 1001 classes, .* 0 to 999: .*--label-offset 1 .*else 0"):
        check_labels(images, 1001, "m")
    check_labels(images, 1001, "m", 1)
    check_labels(images, 1001, "m", 0)
    check_labels(images, 1000, "m")
    own = files(tmp_path / "b", ["999/1.png"])
    with pytest.raises(DataError, match="label-offset"):
        check_labels(open_set(own), 1001, "m")
    few = open_set(files(tmp_path / "c", ["cat/1.png"]))
    with pytest.raises(DataError, match="has labels of 0 to 0: "):
        check_labels(few, 1001, "m")
    check_labels(few, 1001, "m", 0)


def test_labels_with_their_offset_lie_within_the_model(tmp_path):
    images = open_set(files(tmp_path, ["0/1.png", "9/1.png"]))
    check_labels(images, 11, "m", 1)
    with pytest.raises(
        DataError, match=r"9/1\.png has the label 9 \+ 1, outside the classes of m \(0\.\.9\)"
    ):
        check_labels(images, 10, "m", 1)
    with pytest.raises(DataError, match=r"0/1\.png has the label 0 - 1, outside"):
        check_labels(images, 10, "m", -1)


def test_a_set_that_changed_is_refused(tmp_path):
    before = open_set(files(tmp_path, ["cat/1.png"])).listing_sha256
    check_unchanged(open_set(tmp_path), before)
    (tmp_path / "cat" / "1.png").write_text("longer than before")
    with pytest.raises(DataError, match=r"the images in .* changed since the study was planned"):
        check_unchanged(open_set(tmp_path), before)


def test_each_folder_and_file_is_looked_at_once(tmp_path, monkeypatch):
    import os

    files(tmp_path, ["cat/1.png", "dog/1.png", "dog/2.png"])
    scanned = []
    monkeypatch.setattr(os, "scandir", lambda path, real=os.scandir: scanned.append(str(path)) or real(path))
    open_set(tmp_path)
    assert sorted(scanned) == [str(tmp_path), str(tmp_path / "cat"), str(tmp_path / "dog")]


def test_the_first_name_that_stands_twice_is_told(tmp_path):
    images = open_set(files(tmp_path, [f"cat/{n}.png" for n in range(3)]))
    with pytest.raises(DataError, match=r"names cat/1\.png twice"):
        named(images, ["cat/0.png", "cat/1.png", "cat/2.png", "cat/1.png", "cat/0.png"][1:])
