import contextlib
import io
import os
import tarfile
import threading
import warnings
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.data.sets import FIRST_IDS, files, indices, refusal, val

from inferometer.data import archives, tars
from inferometer.data.archives import safe_name
from inferometer.data.imageset import open_set
from inferometer.errors import DataError

CONTENT = {"cat/1.png": b"one" * 40, "dog/2.png": b"2", "dog/notes.txt": b"x"}


def zipped(path, content, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def member(name, data=b"x", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data) if kind == tarfile.REGTYPE else 0, kind, link
    return info, data


def tarred(path, content, mode="w", more=()):
    with tarfile.open(path, mode) as archive:
        for info, data in [*(member(name, data) for name, data in content.items()), *more]:
            archive.addfile(info, io.BytesIO(data))
    return path


def packed(path, content):
    return (zipped if path.suffix == ".zip" else tarred)(path, content)


KINDS = pytest.mark.parametrize("name", ["set.zip", "set.tar"])


@KINDS
@pytest.mark.parametrize("top", ["", "set/images/", "./"])
def test_an_archive_is_the_set_that_its_folder_would_be(tmp_path, name, top):
    path = packed(tmp_path / name, {top + file: data for file, data in CONTENT.items()})
    images = open_set(path)
    assert (indices(images), images.layout, images.ignored) == (
        {"cat/1.png": 0, "dog/2.png": 1},
        "folders",
        1,
    )
    assert images.root == path
    assert images.source.read("cat/1.png") == CONTENT["cat/1.png"]
    folder = tmp_path / "folder"
    for file, data in CONTENT.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    assert images.listing_sha256 == open_set(folder).listing_sha256


@KINDS
def test_labels_lie_in_an_archive_or_beside_it_or_are_given(tmp_path, name):
    content = {val(n): b"x" for n in (1, 2, 3)}
    inside = packed(tmp_path / name, content | {"val.txt": f"{val(2)} 970\n".encode()})
    assert indices(open_set(inside)) == {val(2): 970}
    beside = packed(files(tmp_path / "b", {}) / name, {f"val/{file}": data for file, data in content.items()})
    assert "the images lie unlabelled" in refusal(beside)
    truth = "".join(f"{number}\n" for number in FIRST_IDS[:3])
    files(tmp_path / "b", {"ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt": truth})
    assert indices(open_set(beside)) == {val(1): 65, val(2): 970, val(3): 230}
    files(tmp_path, {"other.txt": f"{val(3)} 230\n"})
    assert indices(open_set(beside, tmp_path / "other.txt")) == {val(3): 230}


@KINDS
def test_tables_lie_in_an_archive_or_beside_it(tmp_path, name):
    inside = packed(tmp_path / name, {"labels.csv": b"file,class_index\na.png,4\n", "a.png": b"x"})
    assert (indices(open_set(inside)), open_set(inside).layout) == ({"a.png": 4}, "labels.csv")
    beside = packed(
        files(tmp_path / "b", {"labels.csv": "file,class_index\na.png,5\n"}) / name, {"a.png": b"x"}
    )
    assert indices(open_set(beside)) == {"a.png": 5}


@KINDS
def test_train_and_val_in_an_archive_are_told_apart_by_their_path(tmp_path, name):
    path = packed(tmp_path / name, {"train/cat/1.png": b"1", "val/cat/2.png": b"2", "val/dog/3.png": b"3"})
    assert f"is {path / 'train'} the set? Or {path / 'val'}?" in refusal(path)
    images = open_set(path / "val")
    assert indices(images) == {"cat/2.png": 0, "dog/3.png": 1}
    assert images.source.read("dog/3.png") == b"3"
    assert f"{path} holds no folder test" in refusal(path / "test")


@KINDS
def test_hidden_files_in_an_archive_are_passed_over(tmp_path, name):
    content = {"cat/1.png": b"1", "cat/._1.png": b"x", "__MACOSX/cat/._1.png": b"x", "__MACOSX/1.png": b"x"}
    assert indices(open_set(packed(tmp_path / name, content))) == {"cat/1.png": 0}


UNSAFE = [
    ("/etc/1.png", "has an absolute path"),
    ("a/../../1.png", "leaves the archive through '..'"),
    ("C:/1.png", "begins with a drive letter"),
    ("a\\..\\1.png", "has a backslash"),
]


@KINDS
@pytest.mark.parametrize(("unsafe", "message"), UNSAFE)
def test_unsafe_names_are_refused(tmp_path, name, unsafe, message):
    path = packed(tmp_path / name, {"cat/1.png": b"1", unsafe: b"x"})
    assert message in refusal(path)
    assert repr(unsafe) in refusal(path)


def test_a_nul_in_a_name_is_refused(tmp_path):
    path = zipped(tmp_path / "set.zip", {"cat/1.pngXx": b"1"})
    path.write_bytes(path.read_bytes().replace(b"1.pngX", b"1.png\0"))
    assert "has a NUL character in its name" in refusal(path)


@given(
    st.lists(st.sampled_from(["..", ".", "a", "", "C:", "\\", "\0", "/", "b.png", "..."]), max_size=6).map(
        "/".join
    )
)
def test_a_safe_name_stays_below_its_folder(name):
    try:
        found = safe_name(name)
    except ValueError:
        return
    path = os.path.normpath(f"/root/set/{found}")
    assert path == "/root/set" or path.startswith("/root/set/")
    assert path == os.path.normpath(f"/root/set/{name}")
    assert not {"\\", "\0"} & set(found)


@KINDS
def test_names_that_stand_twice_are_refused(tmp_path, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name.endswith("zip"):
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                archive.writestr("cat/1.png", b"1")
                archive.writestr("./cat/1.png", b"2")
        else:
            tarred(tmp_path / name, {"cat/1.png": b"1"}, more=[member("./cat/1.png", b"2")])
    assert "holds cat/1.png twice" in refusal(tmp_path / name)


def test_an_encrypted_zip_is_refused(tmp_path):
    path = zipped(tmp_path / "set.zip", {"cat/1.png": b"1"})
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "cat/1.png is encrypted: unpack it" in refusal(path)


@pytest.mark.parametrize(("method", "word"), [(zipfile.ZIP_BZIP2, "bzip2"), (zipfile.ZIP_LZMA, "LZMA")])
def test_a_zip_of_another_compression_is_refused(tmp_path, method, word):
    path = zipped(tmp_path / "set.zip", {"cat/1.png": b"1"}, method)
    assert f"cat/1.png is compressed by {word}: unpack it, or pack it with deflate" in refusal(path)


def test_a_zip_without_compression_is_read(tmp_path):
    images = open_set(zipped(tmp_path / "set.zip", CONTENT, zipfile.ZIP_STORED))
    assert images.source.read("cat/1.png") == CONTENT["cat/1.png"]


def test_links_in_a_zip_are_refused(tmp_path):
    info = zipfile.ZipInfo("cat/1.png")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    assert "cat/1.png is a link: pack the files themselves" in refusal(tmp_path / "set.zip")


@KINDS
def test_an_image_larger_than_any_is_refused(tmp_path, name, monkeypatch):
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 100)
    path = packed(tmp_path / name, CONTENT)
    assert "cat/1.png has 120 bytes, more than 100: no photograph" in refusal(path)


def test_a_zip_that_declares_less_than_it_unpacks_to_is_a_bad_image(tmp_path):
    path = zipped(tmp_path / "set.zip", {"cat/1.png": bytes(10**6)})
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DataError, match="is damaged: its length or checksum is another"):
        open_set(path).source.read("cat/1.png")


def test_a_damaged_member_is_a_bad_image(tmp_path):
    path = zipped(tmp_path / "set.zip", {"cat/1.png": b"hello", "cat/2.png": b"there"}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b"hello", b"hallo"))
    images = open_set(path)
    with pytest.raises(DataError, match="is damaged: its length or checksum is another"):
        images.source.read("cat/1.png")
    assert images.source.read("cat/2.png") == b"there"
    with pytest.raises(DataError, match="no such file in the archive"):
        images.source.read("cat/3.png")


@pytest.mark.parametrize("keep", [0.5, 0.9, 0.99])
@KINDS
def test_truncated_archives_are_refused(tmp_path, name, keep):
    path = packed(tmp_path / name, {f"cat/{n}.png": os.urandom(3000) for n in range(5)})
    data = path.read_bytes()
    end = len(data) if name.endswith("zip") else data.rindex(b"ustar") - 257 + 512 + 3072
    path.write_bytes(data[: int(end * keep)])
    assert "is truncated" in refusal(path)


def test_a_tar_cut_between_two_files_is_refused(tmp_path):
    path = tarred(tmp_path / "set.tar", {"cat/1.png": b"1", "cat/2.png": b"2"})
    path.write_bytes(path.read_bytes()[:1024])
    assert "is truncated: its end is missing" in refusal(path)


def test_a_tar_with_a_broken_header_is_refused(tmp_path):
    path = tarred(tmp_path / "set.tar", {"cat/1.png": b"1", "cat/2.png": b"2"})
    data = bytearray(path.read_bytes())
    data[1024] ^= 1
    path.write_bytes(data)
    assert "is broken at byte 1024: no file begins there" in refusal(path)


def test_tars_behind_one_another_are_refused(tmp_path):
    first = tarred(tmp_path / "a.tar", {"cat/1.png": b"1"}).read_bytes()
    second = tarred(tmp_path / "b.tar", {"dog/2.png": b"2"}).read_bytes()
    path = tmp_path / "set.tar"
    path.write_bytes(first + second)
    message = f"another archive begins at byte {len(first)} behind its end: pack them as one"
    assert message in refusal(path)


@pytest.mark.parametrize("size", [1, 2000])
def test_a_tar_with_a_zeroed_header_in_the_middle_is_refused(tmp_path, size):
    path = tarred(tmp_path / "set.tar", {"cat/1.png": b"1", "cat/2.png": b"2" * size, "dog/3.png": b"3"})
    data = bytearray(path.read_bytes())
    data[1024:1536] = bytes(512)
    path.write_bytes(data)
    assert "is broken: it ends before byte 1536, but content follows" in refusal(path)


def test_a_tar_may_end_with_many_blocks_of_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(tars, "_CHUNK", 1000)
    path = tarred(tmp_path / "set.tar", CONTENT)
    whole = path.read_bytes() + bytes(512 * 9)
    path.write_bytes(whole)
    assert len(open_set(path).entries) == 2
    path.write_bytes(whole + b"x")
    assert f"it ends before byte {len(whole)}, but content follows" in refusal(path)


@KINDS
def test_a_member_below_thousands_of_folders_is_no_trouble(tmp_path, name):
    images = open_set(packed(tmp_path / name, {"cat/1.png": b"1", "cat/" + "d/" * 3000 + "2.png": b"2"}))
    assert (indices(images), images.ignored) == ({"cat/1.png": 0}, 1)


@pytest.mark.parametrize(("mode", "word"), [("w:gz", "gzip"), ("w:bz2", "bzip2"), ("w:xz", "xz")])
def test_a_compressed_tar_is_refused(tmp_path, mode, word):
    path = tarred(tmp_path / f"set.tar.{mode[2:]}", CONTENT, mode)
    assert f"is compressed ({word}): decompress it first" in refusal(path)


def test_links_within_a_tar_are_followed(tmp_path):
    links = [
        member("cat/2.png", kind=tarfile.LNKTYPE, link="cat/1.png"),
        member("dog/3.png", kind=tarfile.SYMTYPE, link="../cat/2.png"),
    ]
    images = open_set(tarred(tmp_path / "set.tar", {"cat/1.png": b"one"}, more=links))
    assert indices(images) == {"cat/1.png": 0, "cat/2.png": 0, "dog/3.png": 1}
    assert images.source.read("dog/3.png") == b"one"


@pytest.mark.parametrize(
    ("kind", "link", "message"),
    [
        (tarfile.SYMTYPE, "../../x.png", "leaves the archive through '..'"),
        (tarfile.SYMTYPE, "/etc/passwd", "has an absolute path"),
        (tarfile.LNKTYPE, "../x.png", "leaves the archive through '..'"),
        (tarfile.SYMTYPE, "no.png", "is a link to cat/no.png, no file in it"),
        (tarfile.SYMTYPE, "l.png", "is a link to cat/l.png, no file in it"),
        (tarfile.CHRTYPE, "", "cat/l.png is a device or a pipe"),
        (tarfile.FIFOTYPE, "", "cat/l.png is a device or a pipe"),
    ],
)
def test_links_that_leave_a_tar_and_devices_are_refused(tmp_path, kind, link, message):
    path = tarred(tmp_path / "set.tar", {"cat/1.png": b"1"}, more=[member("cat/l.png", kind=kind, link=link)])
    assert message in refusal(path)


@KINDS
def test_an_archive_that_changed_is_not_read_on(tmp_path, name):
    path = packed(tmp_path / name, CONTENT)
    images = open_set(path)
    with path.open("ab") as stream:
        stream.write(b"more")
    with pytest.raises(DataError, match="the archive changed since it was listed"):
        images.source.read("cat/1.png")
    path.unlink()
    with pytest.raises(DataError, match="no such file or directory"):
        images.source.read("cat/1.png")


@KINDS
def test_threads_read_at_once(tmp_path, name):
    content = {f"cat/{n:02}.png": os.urandom(20_000 + n) for n in range(40)}
    images = open_set(packed(tmp_path / name, content))
    wrong = []

    def read():
        for entry in images.entries:
            if images.source.read(entry.file) != content[entry.file]:
                wrong.append(entry.file)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("name", ["set.zip", "set.tar"])
def test_what_is_no_archive_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"hello" * 300)
    assert "is truncated or broken" in refusal(tmp_path / name)
    (tmp_path / "empty").mkdir()
    assert "no images: looked for labels.csv" in refusal(packed(tmp_path / "empty" / name, {}))


@given(st.binary(max_size=400))
def test_no_bytes_behind_a_zip_name_end_in_anything_but_a_refusal(tmp_path_factory, noise):
    folder = tmp_path_factory.getbasetemp()
    path = zipped(folder / "noise.zip", {"cat/1.png": b"1"})
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 30] + noise + data[len(data) - 22 :])
    with contextlib.suppress(DataError):
        assert indices(open_set(path)) == {"cat/1.png": 0}
