"""Real images under load: each call of a session takes the next decoded batch.

What a call waits for its batch, and what handing it over takes, is part of the call: both lie between two
stamps of the loop that times it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Literal

from inferometer.contracts import Session
from inferometer.data.feeder import Buffer, Feeder
from inferometer.data.imageset import check_unchanged, open_set, ordered
from inferometer.data.pixels import decoder_name
from inferometer.environment.cgroup import usable_cores
from inferometer.measure import Measurement, Together, throughput_of
from inferometer.records import Feeding
from inferometer.trials.images import ImageInput, image_input_of
from inferometer.trials.spec import TrialSpec

__all__ = ["FedSession", "bottleneck_of", "fed", "feeding_of"]

_ALONE_S = 1.5  # for which the threads decode with nothing else to do
_SOME, _MUCH = 0.02, 0.10  # shares of the slots' time spent waiting. Source: chosen
_SHARED, _MOST = 0.05, 0.5  # of what the threads decode alone. Source: chosen


class FedSession:
    """A session whose ``submit`` takes a batch of images first; what a measurement drives."""

    def __init__(self, session: Session, feeder: Feeder, image: ImageInput) -> None:
        """``session`` and ``feeder`` stay the caller's."""
        self._session, self.feeder, self._image = session, feeder, image
        self._taken: list[Buffer | None] = [None] * session.in_flight
        self._spent: list[tuple[int, int, int]] = []  # when a call began, ns it waited, ns of handing over
        self.in_flight, self.ordered = session.in_flight, session.ordered

    def submit(self, slot: int) -> None:
        """Start an inference on the next images.

        Raises:
            DataError: There are none, since too many cannot be decoded.
        """
        clock = time.monotonic_ns
        begin = clock()
        done = self._taken[slot]
        if done is not None:  # an engine may read it until its call is done
            self.feeder.give_back(done)
            self._taken[slot] = None
        buffer = self._taken[slot] = self.feeder.take()
        got = clock()
        self._session.prepare(slot, self._image.feeds(buffer.images))
        self._spent.append((begin, got - begin, clock() - got))
        self._session.submit(slot)

    def wait(self, slot: int) -> None:
        """Return when the slot's inference is done."""
        self._session.wait(slot)

    def shares(self, measurement: Measurement) -> tuple[float, float]:
        """Of the slots' time in a measurement the share of waiting for images, and of handing them over."""
        spans = [(int(one.submitted.min()), int(one.completed.max())) for one in measurement.segments]
        whole_ns = self.in_flight * sum(end - begin for begin, end in spans)
        inside = [one for one in self._spent if any(begin <= one[0] <= end for begin, end in spans)]
        return sum(one[1] for one in inside) / whole_ns, sum(one[2] for one in inside) / whole_ns

    def decoding_alone(self) -> float | None:
        """Images/s that the same threads decode while the device does nothing; ends the feeding."""
        for slot, buffer in enumerate(self._taken):
            if buffer is not None:
                self.feeder.give_back(buffer)
                self._taken[slot] = None
        return self.feeder.alone(_ALONE_S)


@contextlib.contextmanager
def fed(spec: TrialSpec, session: Session, batch: int, rank: int = 0) -> Iterator[FedSession]:
    """Feed a session with the images of ``spec.feed``, for as long as the context lasts.

    Of several ranks each goes through its own images, every n-th of the set; through all of them where the
    set is smaller.

    Raises:
        InferometerError: The images changed, or cannot be fed to this model.
    """
    assert spec.feed is not None, "planning gives a trial on images their place"
    images = open_set(spec.feed.data, spec.feed.labels, labelled=False)
    check_unchanged(images, spec.feed.listing_sha256)
    order = ordered(images, spec.seed)
    image = image_input_of(session.inputs, spec.preprocess, spec.inputs, spec.trial.model)
    feeder = Feeder(
        images.source,
        order[rank :: spec.trial.ranks] or order,
        image.preprocessing,
        batch,
        workers=spec.feed.workers or _workers(spec),
        taken=session.in_flight,
    )
    with feeder:
        yield FedSession(session, feeder, image)


def feeding_of(session: FedSession, measurement: Measurement, together: Together, *, on_cpu: bool) -> Feeding:
    """How images came to the device in a measurement; ends the feeding. All ranks do it at the same time.

    ``on_cpu``: the device are the processors that decode.
    """
    wait, hand = session.shares(measurement)
    together.begin()
    alone = session.decoding_alone()
    busy = throughput_of(measurement).images_per_s / alone if on_cpu and alone else None
    return Feeding(
        images=session.feeder.images,
        workers=session.feeder.workers,
        wait_share=wait,
        prepare_share=hand,
        images_per_s=alone,
        bottleneck=bottleneck_of(wait, busy),
        decoder=decoder_name(),
    )


def bottleneck_of(wait_share: float, busy_share: float | None) -> Literal["images", "device", "both"]:
    """What bounds the rate.

    Batches are decoded ahead: where the device is the slower, one is always ready. Waiting for one tells that
    decoding is too slow, unless its threads themselves wait for processors that the model runs on.

    Args:
        wait_share: Of the slots' time, what was spent waiting for a ready batch. Up to 2 % of it is the
            device's bound, from 10 % on it is the images', and in between both have a part in it.
        busy_share: The rate over what the threads decode alone, where they run on the model's own processors;
            None where they have others. From 5 % on it is no longer the device alone that bounds, and under a
            half never the images alone.
    """
    busy = 0.0 if busy_share is None else busy_share
    if wait_share >= _MUCH and (busy_share is None or busy >= _MOST):
        return "images"
    return "both" if wait_share > _SOME or busy >= _SHARED else "device"


def _workers(spec: TrialSpec) -> int:
    """The processors of this rank; where ranks are not pinned, its share of those of the host.

    As many alone as in company: else a device alone would be fed by more.
    """
    sharing = len(spec.places) if spec.cores_per_rank is None else 1
    return max(1, usable_cores() // max(1, sharing))
