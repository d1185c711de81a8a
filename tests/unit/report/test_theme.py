"""Colours: seen on their ground, and told apart by eyes that lack a kind of cone."""

from itertools import combinations

import numpy as np
import pytest

from inferometer.report.theme import DARK, DASHES, LIGHT, PRECISION_COLOURS, SHAPES

# Source: Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency" (2009), matrices for linear RGB at severity 1.0.
EYES = {
    "usual": np.eye(3),
    "without red cones": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "without green cones": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = TO_XYZ @ np.ones(3)
KINDS = ("reorder", "convert", "unknown", "quiet")


def linear(colour):
    """Linear RGB of ``#rrggbb``. Source: IEC 61966-2-1."""
    value = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* of linear RGB."""
    part = TO_XYZ @ np.clip(rgb, 0, 1) / WHITE
    root = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


def apart(one, other, eyes):
    """The distance of two colours in L*a*b*, as such eyes see them."""
    return float(np.linalg.norm(lab(EYES[eyes] @ linear(one)) - lab(EYES[eyes] @ linear(other))))


def contrast(one, other):
    """The contrast ratio. Source: WCAG 2.2, "contrast ratio"."""
    dark, light = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def test_the_measures_are_those_of_the_sources():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert apart("#ffffff", "#000000", "usual") == pytest.approx(100, abs=0.01)
    # Pure red and a dark green that eyes without red cones take for one another.
    assert apart("#ff0000", "#00ff00", "without green cones") < apart("#ff0000", "#00ff00", "usual") / 2


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_precisions_are_told_apart_by_their_colours(colours, eyes):
    least = min((apart(colours[a], colours[b], eyes), a, b) for a, b in combinations(PRECISION_COLOURS, 2))
    assert least[0] >= 15, least


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_kinds_of_layers_are_told_apart_from_these_too(colours, eyes):
    every = [*PRECISION_COLOURS, *KINDS]
    least = min((apart(colours[a], colours[b], eyes), a, b) for a, b in combinations(every, 2))
    assert least[0] >= 10, least


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_marks_and_texts_are_seen_on_their_ground(colours):
    marks = {name: contrast(colours[name], colours["ground"]) for name in (*PRECISION_COLOURS, *KINDS)}
    assert min(marks.values()) >= 3, marks  # WCAG 2.2, 1.4.11
    for ground in ("ground", "panel"):
        texts = [
            contrast(colours[name], colours[ground]) for name in ("ink", "quiet", "accent", "good", "bad")
        ]
        assert min(texts) >= 4.5  # WCAG 2.2, 1.4.3


def test_a_second_channel_tells_precisions_apart_without_any_colour():
    assert set(SHAPES) == set(DASHES) == set(PRECISION_COLOURS)
    assert len(set(SHAPES.values())) == len({tuple(dash) for dash in DASHES.values()}) == len(SHAPES)


def test_light_and_dark_name_the_same_colours():
    assert set(LIGHT) == set(DARK)
    assert len(set(DARK.values())) == len(DARK)
