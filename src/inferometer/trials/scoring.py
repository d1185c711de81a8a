"""From a model's outputs and the labels of images to what was right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inferometer.accuracy import top_k
from inferometer.contracts import Session
from inferometer.errors import DataError
from inferometer.models.roles import ClassOutput, class_output, scores_of_rows

__all__ = ["Ranked", "Scorer", "scorer_of"]

_BEST = 5


@dataclass(frozen=True)
class Ranked:
    """The best classes of some images.

    Attributes:
        top: [n, up to 5] int64, best first, numbered as the set's labels are (a background class is -1);
            [n, 1] when the model gives the class alone.
        labels: [n] int64, of the set.
        classes: How many there are; None when the model gives the class alone.
    """

    top: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    classes: int | None


@dataclass(frozen=True)
class Scorer:
    """Scores one output of a model.

    Attributes:
        output: Which.
        label_offset: Added to the labels of the images to get the model's classes.
    """

    output: ClassOutput
    label_offset: int

    def rank(
        self, values: npt.NDArray[Any], labels: npt.NDArray[np.int64], files: Sequence[str] = ()
    ) -> Ranked:
        """Rank the classes of some images.

        Args:
            values: [n, ...] of the output.
            labels: [n] int64 of the image set.
            files: Names, for messages.

        Raises:
            DataError: A label that the model cannot give, or outputs that are NaN.
            ModelError: The values are no class scores.
        """
        wanted = labels + self.label_offset
        if self.output.gives_labels:
            return Ranked(values.reshape(len(values), 1).astype(np.int64) - self.label_offset, labels, None)
        classes = scores_of_rows(values, self.output.name)
        bad = np.flatnonzero((wanted < 0) | (wanted >= classes))
        if bad.size:
            which = files[bad[0]] if len(files) > bad[0] else "an image"
            moved = f" with the offset {self.label_offset}" if self.label_offset else ""
            raise DataError(
                f"{which}: has the label {labels[bad[0]]}{moved}, outside the model's classes "
                f"(0..{classes - 1})"
            )
        top = top_k(values.reshape(len(values), classes), min(_BEST, classes)) - self.label_offset
        return Ranked(top, labels, classes)


def scorer_of(session: Session, wanted: str | None, label_offset: int) -> Scorer:
    """Scores the output ``wanted`` of a session, or the one that can only be it.

    Raises:
        ConfigError, ModelError: As ``class_output``.
    """
    return Scorer(class_output(session.outputs, wanted), label_offset)
