import csv

from inferometer.data.ilsvrc2012 import FIRST_CLASSES, class_of_id, class_of_wnid, number_of, wnids


def test_there_are_1000_sorted_classes():
    assert len(wnids()) == 1000
    assert list(wnids()) == sorted(set(wnids()))
    assert (wnids()[0], wnids()[999]) == ("n01440764", "n15075141")
    assert class_of_wnid()["n01751748"] == 65


def test_the_ids_of_the_kit_are_a_permutation_of_1_to_1000():
    assert sorted(class_of_id()) == list(range(1, 1001))
    assert sorted(class_of_id().values()) == list(range(1000))
    # The first, the last and some in between of map_clsloc.txt.
    known = {1: "n02119789", 449: "n01440764", 490: "n01751748", 500: "n01644373", 1000: "n03255030"}
    assert {number: wnids()[class_of_id()[number]] for number in known} == known


def test_the_first_lines_of_the_ground_truth_name_the_first_lines_of_caffes_list():
    ids = (490, 361, 171, 822, 297, 482, 13, 704, 599, 164, 649)
    assert tuple(class_of_id()[number] for number in ids) == FIRST_CLASSES


def test_only_validation_images_have_a_number():
    assert number_of("ILSVRC2012_val_00000293.JPEG") == 293
    assert number_of("ILSVRC2012_val_00000293") == 293
    assert number_of("ILSVRC2012_test_00000293.JPEG") is None
    assert number_of("ILSVRC2010_val_00000293.JPEG") is None


def test_a_sample_of_imagenet_has_the_same_numbers(test_data):
    with (test_data / "imagenet-sample" / "labels.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 500
    assert all(class_of_wnid()[row["wnid"]] == int(row["class_index"]) for row in rows)
