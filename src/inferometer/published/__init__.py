"""Published studies as data, and their loader."""

from inferometer.published.loader import load, parse, studies
from inferometer.published.points import Coordinates, Metric, PublishedPoint, PublishedStudy

__all__ = [
    "Coordinates",
    "Metric",
    "PublishedPoint",
    "PublishedStudy",
    "load",
    "parse",
    "studies",
]
