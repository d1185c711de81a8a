import pytest
from tests.unit.data.sets import FIRST_IDS, files, indices, refusal, val

from inferometer.data.ilsvrc2012 import FIRST_CLASSES
from inferometer.data.imageset import open_set


@pytest.fixture
def flat(tmp_path):
    return files(tmp_path / "set", ["a.png", "b.jpg"])


def given(tmp_path, text, name="given.csv"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


@pytest.mark.parametrize(
    "file", ["file", "filename", "File Name", "image", "image_path", "path", "ImageId", "id"]
)
@pytest.mark.parametrize("label", ["class_index", "label", "Class", "class_id", "target"])
def test_columns_are_named_as_people_name_them(flat, tmp_path, file, label):
    images = open_set(flat, given(tmp_path, f"x,{label},{file}\n.,3,a.png\n.,0,b.jpg\n"))
    assert indices(images) == {"a.png": 3, "b.jpg": 0}
    assert (images.layout, images.classes, images.numbering) == ("table", 4, "own")


@pytest.mark.parametrize(
    ("delimiter", "name"), [("\t", "l.tsv"), (";", "l.csv"), (",", "l.txt"), ("\t", "l")]
)
def test_tables_have_tabs_commas_or_semicolons(flat, tmp_path, delimiter, name):
    text = "\ufefffile|label\r\na.png|3\r\n\r\nb.jpg|1\r\n".replace("|", delimiter)
    assert indices(open_set(flat, given(tmp_path, text, name))) == {"a.png": 3, "b.jpg": 1}


def test_wnids_win_over_vague_columns_and_class_index_over_both(flat, tmp_path):
    text = "file,label,wnid\na.png,1,n01751748\nb.jpg,0,n01440764\n"
    images = open_set(flat, given(tmp_path, text))
    assert indices(images) == {"a.png": 65, "b.jpg": 0}
    assert (images.numbering, images.classes) == ("ilsvrc2012", 1000)
    text = text.replace("label", "class_index")
    assert indices(open_set(flat, given(tmp_path, text))) == {"a.png": 1, "b.jpg": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "line 1: wants a column for the image, such as file, and one for the label"),
        ("", "wants a column for the image"),
        ("file,label\n", "lists no image"),
        ("file,label,class\na.png,1,2\n", "line 1: which column is the label: label, class? Keep one"),
        ("file,image,label\na.png,a,2\n", "line 1: which column is the image: file, image? Keep one"),
        ("file,label\na.png\n", "line 2: wants 2 cells as in the header"),
        ("file,label\na.png,0\na.png,1\n", "line 3: a.png stands twice"),
        ("file,label\na.png,0\na,1\n", "line 3: a.png stands twice"),
        ("file,label\na.png,0\nc.png,1\n", "names 1 missing files: c.png"),
        ("file,label\nc.png,1\n", "names no file of"),
        ("file,label\n../set/a.png,1\n", "line 2: ../set/a.png lies outside"),
        (
            "file,label\na.png,cat\n",
            "line 2: the label 'cat' of a.png is neither a whole number of 0 or more",
        ),
        ("file,label\na.png,-1\n", "line 2: the label '-1' of a.png is neither"),
        ("file,label\na.png,1\nb.jpg,n01440764\n", "some labels are numbers, others WordNet ids"),
        ("file,label\na.png,n00000001\n", "line 2: the label 'n00000001' of a.png is neither"),
        ('file,label\n"a.png,0\n', "no table or list in UTF-8 text"),
    ],
)
def test_bad_tables(flat, tmp_path, text, message):
    path = given(tmp_path, text)
    assert message in refusal(flat, path)
    assert str(path) in refusal(flat, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lists no image"),
        ("a.png\n", "line 1: wants a file name and its label, such as"),
        ("a.png 1\n\nb.jpg\n", "line 3: wants a file name and its label"),
        ("3\n4\n", "one number per line is the ground truth of ILSVRC2012's validation images"),
        ("a.png 1\na.png 2\n", "line 2: a.png stands twice"),
    ],
)
def test_bad_lists(flat, tmp_path, text, message):
    assert message in refusal(flat, given(tmp_path, text, "list.txt"))


def test_a_file_of_labels_that_is_none(flat, tmp_path):
    assert f"the file of labels {tmp_path / 'no'} does not exist" in refusal(flat, tmp_path / "no")
    assert f"the file of labels {tmp_path} is a folder" in refusal(flat, tmp_path)
    (tmp_path / "raw").write_bytes(b"\xff\xfe\0")
    assert "no table or list in UTF-8 text" in refusal(flat, tmp_path / "raw")


def test_the_only_table_in_a_folder_is_found(flat):
    files(flat, {"mine.tsv": "image\ttarget\na.png\t3\n"})
    images = open_set(flat)
    assert (images.layout, indices(images), images.ignored) == ("table", {"a.png": 3}, 1)
    files(flat, {"other.csv": "image,target\na.png,3\n"})
    assert "holds several tables (mine.tsv, other.csv): give the one with the labels" in refusal(flat)
    assert indices(open_set(flat, flat / "other.csv")) == {"a.png": 3}


def test_a_table_beside_class_folders_is_not_looked_at(tmp_path):
    files(tmp_path, ["cat/1.png"])
    files(tmp_path, {"notes.csv": "who,when\n"})
    assert open_set(tmp_path).layout == "folders"


def test_names_are_numbered_by_a_list_of_classes(flat, tmp_path):
    path = given(tmp_path, "a.png cat\nb.jpg dog\n", "list.txt")
    files(tmp_path, {"classes.txt": "dog\neel\ncat\n"})
    images = open_set(flat, path)
    assert (images.layout, indices(images), images.classes) == ("list", {"a.png": 2, "b.jpg": 0}, 3)
    files(flat, {"classes.txt": "cat\ndog\n"})  # nearer
    assert indices(open_set(flat, path)) == {"a.png": 0, "b.jpg": 1}
    files(flat, {"classes.txt": "cat\n"})
    assert "line 2: the label 'dog' of b.jpg is no class of" in refusal(flat, path)


def test_wnids_are_known_although_a_list_names_the_classes_in_words(flat):
    files(flat, {"classes.txt": "tench\ngoldfish\n", "l.csv": "file,label\na.png,n01443537\n"})
    images = open_set(flat)
    assert (indices(images), images.numbering) == ({"a.png": 1}, "ilsvrc2012")


def test_names_may_lack_their_ending(flat, tmp_path):
    path = given(tmp_path, "id,label\na,1\nb,2\n")
    assert indices(open_set(flat, path)) == {"a.png": 1, "b.jpg": 2}
    files(flat, ["a.jpg"])
    assert "which file is a: a.jpg, a.png? Remove the others" in refusal(flat, path)


@pytest.mark.parametrize("above", ["/data/x/", "set/", "C:\\pictures\\", "./"])
def test_folders_that_all_names_begin_with_are_cut_off(flat, tmp_path, above):
    path = given(tmp_path, f"file,label\n{above}a.png,1\n{above}b.jpg,2\n")
    assert indices(open_set(flat, path)) == {"a.png": 1, "b.jpg": 2}


def test_an_absolute_name_is_never_read_from_elsewhere(flat, tmp_path):
    files(tmp_path / "else", ["c.png"])
    path = given(tmp_path, f"file,label\n{tmp_path}/else/c.png,1\n")
    assert "names no file of" in refusal(flat, path)
    files(flat, {"labels.csv": f"file,class_index\n{tmp_path}/else/c.png,1\n"})
    assert "lies outside" in refusal(flat)


def test_images_below_a_lone_folder_are_found(tmp_path):
    files(tmp_path, ["images/val_0.JPEG", "images/val_1.JPEG"])
    annotations = "val_0.JPEG\tn03444034\t0\t32\t44\t62\nval_1.JPEG\tn04067472\t52\t55\t57\t59\n"
    files(tmp_path, {"val_annotations.txt": annotations})
    images = open_set(tmp_path, tmp_path / "val_annotations.txt")
    assert indices(images) == {"val_0.JPEG": 573, "val_1.JPEG": 758}
    assert images.root == tmp_path / "images"


def test_a_list_may_name_images_in_class_folders(tmp_path):
    files(tmp_path, ["x/1.png", "y/1.png"])
    files(tmp_path, {"order.txt": "x/1.png 1\ny/1.png 0\n"})
    images = open_set(tmp_path, tmp_path / "order.txt")
    assert (indices(images), images.layout) == ({"x/1.png": 1, "y/1.png": 0}, "list")


TABLES = pytest.mark.parametrize("name", ["labels.csv", "other.csv", "other.tsv"])


def validation(folder, name, labels):
    """Images 1, 2, ... with a table of their labels."""
    files(folder, [val(n) for n in range(1, len(labels) + 1)])
    delimiter = "\t" if name.endswith("tsv") else ","
    rows = ["file,class_index", *(f"{val(n)},{label}" for n, label in enumerate(labels, 1))]
    files(folder, {name: "".join(f"{row}\n".replace(",", delimiter) for row in rows)})
    return folder


@TABLES
@pytest.mark.parametrize("shift", [0, -1])
def test_a_table_of_the_kits_numbers_is_refused(tmp_path, name, shift):
    validation(tmp_path, name, [number + shift for number in FIRST_IDS])
    message = refusal(tmp_path)
    assert f"{name}, line 2: gives {val(1)} the class {490 + shift}, which is 65 (n01751748)" in message
    assert "these numbers count otherwise" in message


@TABLES
def test_one_wrong_label_of_a_known_image_is_enough(tmp_path, name):
    validation(tmp_path, name, [*FIRST_CLASSES[:10], 110, 5])
    assert f"line 12: gives {val(11)} the class 110, which is 109" in refusal(tmp_path)
    validation(tmp_path, name, [index + 1 for index in FIRST_CLASSES[:10]] + [109])
    assert f"line 2: gives {val(1)} the class 66, which is 65" in refusal(tmp_path)


@TABLES
def test_a_table_that_counts_from_1_is_taken_and_warned_of(tmp_path, caplog, name):
    images = open_set(validation(tmp_path, name, [*(index + 1 for index in FIRST_CLASSES), 1000]))
    assert images.entries[0].class_index == 66
    assert (images.numbering, images.classes) == ("own", 1001)
    assert f"its labels count from 1: {val(1)}, of class 65, has 66: for a model of 1001" in caplog.text


@TABLES
def test_a_table_of_true_labels_is_not_warned_of(tmp_path, caplog, name):
    images = open_set(validation(tmp_path, name, FIRST_CLASSES))
    assert (images.entries[10].class_index, images.numbering) == (109, "own")
    assert not caplog.records


@pytest.mark.parametrize("ending", [".jpeg", ".jpg", ".png"])
def test_validation_images_with_another_ending_are_found(tmp_path, ending):
    files(tmp_path, [val(1, ending), val(2, ending).lower(), val(3)])
    path = files(
        tmp_path / "l", {"l.txt": "".join(f"{val(n)} {FIRST_CLASSES[n - 1]}\n" for n in range(1, 6))}
    )
    images = open_set(tmp_path, path / "l.txt")
    assert indices(images) == {val(1, ending): 65, val(2, ending).lower(): 970, val(3): 230}
    assert images.numbering == "ilsvrc2012"


def test_two_files_for_one_validation_image_are_refused(tmp_path):
    files(tmp_path, [val(1, ".jpeg"), val(1, ".png"), val(2)])
    files(tmp_path, {"val.txt": f"{val(1)} 65\n{val(2)} 970\n"})
    assert f"which file is {val(1)}: {val(1, '.jpeg')}, {val(1, '.png')}? Remove the others" in refusal(
        tmp_path
    )


def test_missing_names_are_warned_of_when_images_are_left_over(tmp_path, caplog):
    files(tmp_path, [val(1), val(7)])
    files(tmp_path, {"val.txt": f"{val(1)} 65\n{val(2)} 970\n{val(3)} 230\n"})
    images = open_set(tmp_path)
    assert (indices(images), images.ignored) == ({val(1): 65}, 1)
    assert f"2 of its 3 images are not there, and 1 images have no line in it ({val(7)})" in caplog.text
    caplog.clear()
    (tmp_path / val(7)).unlink()
    assert indices(open_set(tmp_path)) == {val(1): 65}
    assert not caplog.records
