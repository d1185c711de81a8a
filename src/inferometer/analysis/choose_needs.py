"""Whether a candidate meets each need: only by what was measured, and by its cautious end (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from inferometer.analysis.choose_candidates import difference_of
from inferometer.analysis.choose_rows import Candidate, Judged, Need, NeedVerdict, Watts, What
from inferometer.analysis.rows import Summary
from inferometer.analysis.wording import count, joined, milliseconds, percent, plural, points, significant

__all__ = ["judged"]


def judged(one: Candidate, need: Need, summary: Summary) -> Candidate:
    """With a verdict on each need, and the worst of them as its own."""
    found: list[Judged] = []
    if need.images_per_s is not None:
        found.append(_rate(one))
    if need.p99_s is not None:
        found.append(_p99(one, need))
    if need.watts is not None:
        found.append(_watts(one, need.watts))
    if need.j_per_image is not None:
        found.append(_joules(one, need.j_per_image))
    if need.min_top1 is not None:
        found.append(_top1(one, need.min_top1))
    if need.max_drop is not None:
        found.append(_loss(one, summary, need.max_drop))
    words = {each.verdict for each in found}
    verdict: NeedVerdict = "fails" if "fails" in words else "not known" if "not known" in words else "meets"
    return replace(one, judged=tuple(found), verdict=verdict)


def _rate(one: Candidate) -> Judged:
    if one.devices is None:
        return Judged("rate", "not known", "the interval of its rate reaches 0")
    return Judged("rate", "meets", plural(one.devices, "device"))


def _p99(one: Candidate, need: Need) -> Judged:
    limit, latency = need.p99_s or 0.0, one.crew.latency
    if latency is None:
        return Judged("p99", "not known", "not measured")
    how = " under load" if latency.under_load else " with one request at a time"
    if latency.p99_s is None:
        if latency.least_s > limit:
            text = f"at least {milliseconds(latency.least_s)} ms{how}"
            return _failing("p99", text, latency.least_s, limit)
        calls = f"{plural(latency.calls, 'call')} {'is' if latency.calls == 1 else 'are'}"
        return Judged("p99", "not known", f"{calls} too few for a p99")
    text = f"{milliseconds(latency.p99_s)} ms{how}"
    if latency.p99_s > limit:
        return _failing("p99", text, latency.p99_s, limit)
    if not latency.under_load and need.images_per_s is not None:
        # Under load a call is no shorter: this can refuse, not prove.
        return Judged("p99", "not known", f"{text}; under load not measured")
    return Judged("p99", "meets", text)


def _watts(one: Candidate, limit: float) -> Judged:
    devices = one.devices
    if devices is None or not one.crew.watts:
        return Judged("watts", "not known", "not measured")

    def total(each: Watts) -> float:
        return each.load_w * each.times(one.crew.devices, devices)

    most = max(one.crew.watts, key=total)
    others = [
        f"{significant(total(each))} W of {each.boundary}" for each in one.crew.watts if each is not most
    ]
    where = most.boundary + (f"; beside it {joined(others)}" if others else "")
    cautious = most.most_w * most.times(one.crew.devices, devices)
    return _at_most("watts", total(most), cautious, limit, significant, "W", f" ({where})")


def _joules(one: Candidate, limit: float) -> Judged:
    crew = one.crew
    if crew.j_per_image is None:
        return Judged("joules", "not known", "not measured")
    cautious = crew.j_interval[1] if crew.j_interval else crew.j_per_image
    return _at_most(
        "joules", crew.j_per_image, cautious, limit, significant, "J an image", f" ({crew.boundary})"
    )


def _at_most(
    what: What,
    value: float,
    cautious: float,
    limit: float,
    text: Callable[[float], str],
    unit: str,
    where: str,
) -> Judged:
    if cautious <= limit:
        return Judged(what, "meets", f"{text(value)} {unit}{where}")
    if value <= limit:
        # Rounded it may read as the limit itself.
        most = text(cautious) if text(cautious) != text(limit) else f"{cautious:,.6g}"
        return Judged(what, "not known", f"{text(value)} {unit}{where}, up to {most} within its interval")
    return _failing(what, f"{text(value)} {unit}{where}", value, limit)


def _failing(what: What, text: str, value: float, limit: float) -> Judged:
    times = value / limit
    over = f"{percent(times - 1)} more than" if times < 1.1 else f"{significant(times)} times what"
    return Judged(what, "fails", f"{text}, {over} is allowed", times)


def _top1(one: Candidate, least: float) -> Judged:
    if one.top1 is None or one.top1_interval is None:
        return Judged("top-1", "not known", "not measured")
    low, high = one.top1_interval
    text = f"{percent(one.top1)} ({percent(low)} to {percent(high)})"
    if low >= least:
        return Judged("top-1", "meets", text)
    if one.top1 >= least:
        return Judged("top-1", "not known", f"{text}: the interval holds {percent(least)}")
    return Judged(
        "top-1", "fails", f"{text}, {points(least - one.top1)} points short", least / max(one.top1, 1e-9)
    )


def _loss(one: Candidate, summary: Summary, most: float) -> Judged:
    """Against FP32, image by image: the cautious end of the difference counts."""
    if one.setup.precision == "fp32":
        return Judged("loss", "meets", "it is FP32 itself")
    row = difference_of(summary, one.setup)
    if row is None:
        return Judged("loss", "not known", "its accuracy was not compared with FP32's")
    loss, worst = -row.delta, -row.interval[0]
    text = f"{points(loss)} points of top-1 (up to {points(worst)}), {row.verdict}"
    if worst <= most:
        return Judged("loss", "meets", text)
    if loss <= most:
        more = row.images_to_settle
        wants = f": about {count(more)} more images would tell" if more else ""
        return Judged("loss", "not known", f"{text}{wants}")
    return Judged("loss", "fails", f"{text}, {points(loss - most)} points too much", loss / max(most, 1e-9))
