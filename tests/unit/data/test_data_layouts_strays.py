"""What lies among the images and is no part of the set."""

import os

import pytest
from tests.unit.data.sets import files, indices, refusal

from inferometer.data import source
from inferometer.data.imageset import open_set
from inferometer.data.source import FolderSource
from inferometer.errors import DataError


@pytest.mark.parametrize(
    ("folders", "what", "strays"),
    [
        (["n01440764", "n01443537", "extra"], "WordNet ids of ILSVRC2012", "extra"),
        (["n01440764", "n01443537", "n00000001"], "WordNet ids of ILSVRC2012", "n00000001"),
        (["n01440764", "new"], "WordNet ids of ILSVRC2012", "new"),
        (["0", "1", "2", "10", "misc", "x"], "whole numbers", "misc, x"),
        (["0", "1", "1.5"], "whole numbers", "1.5"),
    ],
)
def test_a_folder_of_another_kind_than_the_others_is_refused(tmp_path, folders, what, strays):
    files(tmp_path, [f"{name}/1.png" for name in folders])
    message = refusal(tmp_path)
    assert f"{tmp_path}: {len(folders) - len(strays.split(', '))} of {len(folders)} class folders" in message
    assert f"are named by {what}, but not {strays}: move them out of the folder, or give --labels" in message
    files(tmp_path, {"classes.txt": "".join(f"{name}\n" for name in folders)})
    expected = {f"{name}/1.png": index for index, name in enumerate(folders)}
    assert indices(open_set(tmp_path)) == expected


def test_few_numbers_or_wnids_among_names_are_names(tmp_path):
    files(tmp_path, ["n01440764/1.png", "7/1.png", "a/1.png", "b/1.png", "c/1.png"])
    images = open_set(tmp_path)
    assert [entry.class_index for entry in images.entries] == [0, 1, 2, 3, 4]
    assert images.layout == "folders"


def test_a_negative_number_is_no_class(tmp_path):
    files(tmp_path, ["-1/1.png", "0/1.png", "1/1.png"])
    assert "a negative number is no class index: -1: rename the folder" in refusal(tmp_path)


@pytest.mark.parametrize("hollow", ["notes", "n00000001", "7"])
def test_a_folder_without_images_does_not_renumber_wnids(tmp_path, caplog, hollow):
    files(tmp_path, ["n15075141/a.JPEG", "n01443537/b.JPEG"])
    files(tmp_path, {f"{hollow}/readme.txt": "x"})
    images = open_set(tmp_path)
    assert indices(images) == {"n01443537/b.JPEG": 1, "n15075141/a.JPEG": 999}
    assert (images.layout, images.numbering, images.classes) == ("wnid folders", "ilsvrc2012", 1000)
    assert f"1 class folders hold no image: {hollow}" in caplog.text


def test_a_folder_without_images_does_not_renumber_numbers(tmp_path, caplog):
    files(tmp_path, ["3/a.png", "5/b.png"])
    for hollow in ("notes", "-1", "8"):
        (tmp_path / hollow).mkdir()
    images = open_set(tmp_path)
    assert indices(images) == {"3/a.png": 3, "5/b.png": 5}
    assert (images.layout, images.classes) == ("index folders", 9)
    assert "3 class folders hold no image: -1, 8, notes" in caplog.text


def test_a_folder_without_images_need_not_be_listed(tmp_path):
    files(tmp_path, ["cat/1.png", "dog/1.png"])
    files(tmp_path, {"classes.txt": "dog\ncat\n", "notes/a.txt": "x"})
    assert indices(open_set(tmp_path)) == {"cat/1.png": 1, "dog/1.png": 0}


def test_train_and_val_beside_a_folder_without_images_are_two_sets(tmp_path):
    files(tmp_path, ["train/1.png", "val/1.png"])
    (tmp_path / "notes").mkdir()
    assert f"is {tmp_path / 'train'} the set? Or {tmp_path / 'val'}?" in refusal(tmp_path)


@pytest.mark.parametrize("between", ["_", "-"])
def test_a_name_may_follow_a_wnid(tmp_path, between):
    files(tmp_path, [f"n01751748{between}sea_snake/1.png", "n01440764/1.png"])
    images = open_set(tmp_path)
    assert [entry.class_index for entry in images.entries] == [0, 65]
    assert (images.layout, images.numbering, images.classes) == ("wnid folders", "ilsvrc2012", 1000)
    files(tmp_path, {"synset_words.txt": "n01751748 sea snake\nn01440764 tench\n"})
    assert [entry.class_index for entry in open_set(tmp_path).entries] == [1, 0]
    files(tmp_path, ["n01440764_tench/2.png"])
    assert "two folders stand for one class: n01440764, n01440764_tench" in refusal(tmp_path)
    (tmp_path / "synset_words.txt").unlink()
    assert "two folders stand for one class: n01440764, n01440764_tench" in refusal(tmp_path)


def test_images_deeper_than_the_class_folders_are_told(tmp_path, caplog):
    files(tmp_path, ["cat/1.png", "dog/2.png", "dog/more/3.png", "dog/more/still/4.png", "dog/.x/5.png"])
    (tmp_path / "dog" / "more" / "up").symlink_to(tmp_path)
    images = open_set(tmp_path)
    assert indices(images) == {"cat/1.png": 0, "dog/2.png": 1}
    assert images.ignored == 2
    assert "2 images lie deeper than in the class folders, such as dog/more/3.png: left out" in caplog.text


@pytest.mark.parametrize("target", ["absent.png", "link.png"])
@pytest.mark.parametrize("place", [".", "cat"])
def test_links_that_lead_nowhere_are_left_out_and_told(tmp_path, caplog, target, place):
    files(tmp_path, ["cat/1.png", "dog/2.png"])
    (tmp_path / place / "link.png").symlink_to(target)
    images = open_set(tmp_path)
    assert (indices(images), images.ignored) == ({"cat/1.png": 0, "dog/2.png": 1}, 1)
    name = "link.png" if place == "." else "cat/link.png"
    assert f"1 links lead nowhere, such as {name}: left out" in caplog.text


@pytest.mark.parametrize("target", ["absent.png", "link.png"])
def test_links_that_lead_nowhere_beside_labels(tmp_path, caplog, target):
    files(tmp_path, ["1.png"])
    files(tmp_path, {"labels.csv": "file,class_index\n1.png,3\n"})
    (tmp_path / "link.png").symlink_to(target)
    images = open_set(tmp_path)
    assert (indices(images), images.ignored) == ({"1.png": 3}, 1)
    assert "such as link.png: left out" in caplog.text
    files(tmp_path, {"labels.csv": "file,class_index\nlink.png,3\n"})
    assert "names 1 missing files: link.png" in refusal(tmp_path)


def test_a_hidden_link_that_leads_nowhere_is_passed_over(tmp_path, caplog):
    files(tmp_path, ["cat/1.png"])
    (tmp_path / "cat" / ".#1.png").symlink_to("host.1:2")  # an editor's lock
    assert open_set(tmp_path).ignored == 1
    assert not caplog.records


@pytest.mark.parametrize("inside", ["", "set/images/"])
def test_a_file_that_changed_since_it_was_listed_is_a_bad_image(tmp_path, inside):
    files(tmp_path, [f"{inside}cat/1.png", f"{inside}cat/2.png", f"{inside}dog/3.png"])
    images = open_set(tmp_path)
    path = images.root / "cat" / "1.png"
    before, size = path.stat(), path.stat().st_size
    path.write_bytes(b"longer than it was before by some")
    with pytest.raises(DataError, match=f"^changed since it was listed: it has 33 bytes, had {size}$"):
        images.source.read("cat/1.png")
    path.write_bytes(b"y" * size)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1000))
    with pytest.raises(DataError, match="changed since it was listed: it was written to, its size is the"):
        images.source.read("cat/1.png")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert images.source.read("cat/1.png") == b"y" * size
    assert images.source.read("dog/3.png") == (images.root / "dog" / "3.png").read_bytes()


def test_a_file_behind_a_link_is_compared_with_its_target(tmp_path):
    real = files(tmp_path / "real", ["1.png"])
    (tmp_path / "set" / "cat").mkdir(parents=True)
    (tmp_path / "set" / "cat" / "a.png").symlink_to(real / "1.png")
    images = open_set(tmp_path / "set")
    assert images.source.read("cat/a.png") == b"xxxxx"
    (real / "1.png").write_bytes(b"y")
    with pytest.raises(DataError, match="it has 1 bytes, had 5"):
        images.source.read("cat/a.png")


def test_what_was_listed_is_told_by_name_below_the_set(tmp_path):
    files(tmp_path, ["a/set/cat/1.png", "a/set/dog/22.png"])
    listed = open_set(tmp_path).source
    assert dict(listed.sizes) == {"cat/1.png": len("a/set/cat/1.png"), "dog/22.png": len("a/set/dog/22.png")}
    path = tmp_path / "a/set/cat/1.png"
    assert listed.times["cat/1.png"] == path.stat().st_mtime_ns
    assert listed.sizes.get("cat/no.png") is listed.sizes.get("no/1.png") is None


def test_a_source_without_a_list_reads_what_is_there(tmp_path):
    files(tmp_path, ["1.png"])
    plain = FolderSource(tmp_path)
    (tmp_path / "1.png").write_bytes(b"changed")
    assert plain.read("1.png") == b"changed"
    assert plain == FolderSource(tmp_path, {"1.png": 9})
    with pytest.raises(DataError, match="had 9"):
        FolderSource(tmp_path, {"1.png": 9}).read("1.png")


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, monkeypatch):
    files(tmp_path, ["1.png"])
    monkeypatch.setattr(source.Path, "read_bytes", lambda self: b"xx")
    with pytest.raises(DataError, match="changed while it was read: 2 bytes came, it had 5"):
        FolderSource(tmp_path).read("1.png")


@pytest.mark.parametrize("deeper", ["", "images/"])
def test_images_without_labels_open_where_none_are_needed(tmp_path, deeper):
    files(tmp_path, [f"{deeper}b.png", f"{deeper}a.jpg"])
    files(tmp_path, {f"{deeper}notes.txt": "x"})
    images = open_set(tmp_path, labelled=False)
    assert indices(images) == {"a.jpg": -1, "b.png": -1}
    assert (images.layout, images.classes, images.numbering, images.ignored) == ("unlabelled", 0, "own", 1)
    assert images.source.read("a.jpg") == b"x" * len(f"{deeper}a.jpg")
    assert "the images lie unlabelled in it" in refusal(tmp_path)


def test_labels_that_are_there_are_taken_where_none_are_needed(tmp_path):
    files(tmp_path, ["a.png"])
    files(tmp_path, {"labels.csv": "file,class_index\na.png,4\n"})
    images = open_set(tmp_path, labelled=False)
    assert (indices(images), images.layout) == ({"a.png": 4}, "labels.csv")
