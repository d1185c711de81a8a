"""What would help, where the figures of an explanation support it; nothing else is advised."""

from __future__ import annotations

from collections.abc import Iterator

from inferometer.analysis.explain_rows import Explanation, Part
from inferometer.analysis.marks import is_marked
from inferometer.analysis.wording import milliseconds, percent, plural, ratio

__all__ = ["advice"]

_WORTH = 0.05
"""Share of a call's profile from which a saving is told of. Source: chosen."""


def advice(one: Explanation) -> tuple[str, ...]:
    """Sentences on what would help; each names the most that it could save, by the profile."""
    return tuple(
        sentence
        for rule in (_other_precision, _float_layers, _slower, _quantize, _batch, _instructions)
        for sentence in rule(one)
    )


def _other_precision(one: Explanation) -> Iterator[str]:
    if one.gain.verdict == "slower" and one.own.setup.precision == "int8":
        base = one.base.setup.precision.upper()
        yield f"{base} is the faster choice here at batch {one.own.setup.batch}, and needs no calibration."


def _float_layers(one: Explanation) -> Iterator[str]:
    part = _named(one, "otherwise")
    if one.own.setup.precision != "int8":
        return
    if is_marked(one.own.mac_share) and one.calibration_source == "model":
        engine = one.own.setup.engine
        yield (
            f"The file came already quantized: the float model, calibrated in this engine's own form"
            f" (inferometer calibrate MODEL --engine {engine}), may run more of it in INT8."
        )
    if part is not None and _share(one, part.own_s) >= _WORTH:
        layers = plural(len(part.own_layers), "layer that multiplies", "layers that multiply")
        kernels = "an INT8 kernel" if len(part.own_layers) == 1 else "INT8 kernels"
        yield f"{layers} did not run in INT8: {kernels} could save at most {_saving(one, part.own_s)}."


def _slower(one: Explanation) -> Iterator[str]:
    """Only where the others gain, and where the machine did not change between the profiles."""
    lost = sum(pair.own.seconds - pair.base.seconds for pair in one.slower if pair.own.multiplies)
    number = sum(pair.own.multiplies for pair in one.slower)
    part = _named(one, "at_precision")
    sound = one.gain.verdict != "inconclusive: machine changed" and one.own.setup.precision == "int8"
    if sound and part is not None and part.difference_s < 0 and _share(one, lost) >= _WORTH:
        base = one.base.setup.precision.upper()
        yield (
            f"Left in {base}, {plural(number, 'slower layer')} could save at most {_saving(one, lost)}, less"
            " the conversions that this adds."
        )


def _quantize(one: Explanation) -> Iterator[str]:
    """All but two: one change to integers and one from them there must be."""
    part = _named(one, "quantize")
    if part is None or one.own.setup.precision != "int8":
        return
    spare = sum(sorted(layer.seconds for layer in part.own_layers)[:-2])
    if _share(one, spare) >= _WORTH:
        yield (
            f"Fewer changes between INT8 and floats inside the network: all but two of the"
            f" {len(part.own_layers)} could save at most {_saving(one, spare)}."
        )


def _batch(one: Explanation) -> Iterator[str]:
    """Only where verdicts say that small batches lose and larger ones win."""
    slower = [at.batch for at in one.batches if at.verdict == "slower"]
    faster = [at for at in one.batches if at.verdict == "faster"]
    if slower and faster and max(slower) < min(at.batch for at in faster):
        best = max(faster, key=lambda at: at.ratio)
        own = one.own.setup.precision.upper()
        yield f"Larger batches: {own} gains most at batch {best.batch} ({ratio(best.ratio)})."


def _instructions(one: Explanation) -> Iterator[str]:
    cpu = (one.environment or {}).get("cpu") or {}
    on_cpu = one.own.setup.precision == "int8" and one.own.setup.device == "cpu"
    if on_cpu and cpu.get("int8_dot") is False:
        yield "A CPU with 8-bit dot products (VNNI, AMX or Arm's): this one has none."


def _named(one: Explanation, name: str) -> Part | None:
    return next((part for part in one.parts if part.name == name), None)


def _share(one: Explanation, seconds: float) -> float:
    return seconds / one.own.profile_s if one.own.profile_s else 0.0


def _saving(one: Explanation, seconds: float) -> str:
    return f"{milliseconds(seconds)} ms ({percent(_share(one, seconds), 0)}) of its call's profile"
