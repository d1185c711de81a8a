"""Published studies: finding them, and reading their files."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from pydantic import ValidationError

from inferometer.errors import ConfigError, nearest
from inferometer.published.keys import SECTIONS, read_section
from inferometer.published.points import PublishedStudy

__all__ = ["load", "parse", "studies"]

_DESCRIPTION = ("title", "date", "platform", "engine", "accelerators")
# Sections that hold no figures of the study's own; they are kept as they stand.
_FACTS = ("power_method", "accuracy_protocol", "accuracy_gate", "calibration_algorithm")


def studies() -> list[str]:
    """Names of all published studies, sorted."""
    return sorted(
        path.name.removesuffix(".yaml") for path in _folder().iterdir() if path.name.endswith(".yaml")
    )


def load(name: str) -> PublishedStudy:
    """Load a published study.

    Args:
        name: The file's stem, or a prefix that only one study has, such as ``dell-2017-07``.

    Raises:
        ConfigError: No study or more than one has that name, or its file cannot be read as a study.
    """
    known = studies()
    fitting = [name] if name in known else [study for study in known if name and study.startswith(name)]
    if not fitting:
        raise ConfigError(f"unknown published study {name!r}{nearest(name, known)}")
    if len(fitting) > 1:
        raise ConfigError(
            f"{name!r} may be any of the published studies {', '.join(fitting)}; write more of the name"
        )
    return parse(fitting[0], (_folder() / f"{fitting[0]}.yaml").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> PublishedStudy:
    """Read the text of a study's file.

    Args:
        name: The study's name.
        text: YAML; the comment at its head names the source.

    Raises:
        ConfigError: The text is not YAML, repeats a key, or holds something that is not understood: every
            figure becomes one point, none is left out.
    """
    content = _mapping(name, text)
    for key in content:
        if key not in (*_DESCRIPTION, *_FACTS, *SECTIONS):
            hint = nearest(str(key), [*_DESCRIPTION, *_FACTS, *SECTIONS])
            raise ConfigError(f"published study {name}: unknown section {key!r}{hint}")
    accelerators = content.get("accelerators", {})
    if not isinstance(accelerators, dict):
        raise ConfigError(f"published study {name}: accelerators: expected specifications by name")
    points = [
        point
        for section in SECTIONS
        if section in content
        for point in read_section(name, section, content[section], accelerators)
    ]
    try:
        return PublishedStudy.model_validate(
            {
                "name": name,
                **{key: content.get(key) for key in ("title", "date", "platform", "engine")},
                "source": _head_comment(text),
                "accelerators": accelerators,
                "points": tuple(points),
                "facts": {key: content[key] for key in _FACTS if key in content},
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"published study {name}: {place}: {first['msg']}") from error


def _folder() -> Any:
    return resources.files("inferometer.published") / "data"


def _mapping(name: str, text: str) -> dict[str, Any]:
    try:
        # A loader derived from the safe one.
        content = yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"published study {name} is not valid YAML: {reason}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"published study {name} holds no mapping of sections")
    return content


def _head_comment(text: str) -> str:
    lines: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return " ".join(lines)


class _UniqueKeys(yaml.SafeLoader):
    """YAML's own loader keeps the last of two equal keys, and so would lose figures silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        repeated = next((key for place, key in enumerate(keys) if key in keys[:place]), None)
        if repeated is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"key {repeated!r} is repeated", node.start_mark
            )
        return super().construct_mapping(node, deep)
