"""Sets of images for tests: their content is never decoded, so a byte will do."""

import pytest

from inferometer.data.ilsvrc2012 import FIRST_CLASSES, class_of_id
from inferometer.data.imageset import open_set
from inferometer.errors import DataError

IDS = {index: number for number, index in class_of_id().items()}
FIRST_IDS = [IDS[index] for index in FIRST_CLASSES]


def val(number, ending=".JPEG"):
    return f"ILSVRC2012_val_{number:08d}{ending}"


def files(folder, content):
    """Write texts by name; a name alone is an image of its own length in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    named = content if isinstance(content, dict) else {name: "x" * len(name) for name in content}
    for name, text in named.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def indices(images):
    return {entry.file: entry.class_index for entry in images.entries}


def refusal(path, labels=None):
    with pytest.raises(DataError) as caught:
        open_set(path, labels)
    return str(caught.value)
