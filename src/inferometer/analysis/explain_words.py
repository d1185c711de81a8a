"""An explanation in sentences: each says what its figures show, and none claims a cause that they do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferometer.analysis.explain_layers import Layer
from inferometer.analysis.explain_rows import LOSES, Explanation, Part, Side, Single
from inferometer.analysis.findings import crew_text, judgement
from inferometer.analysis.marks import is_marked, share_text, with_mark
from inferometer.analysis.wording import joined, milliseconds, percent, plural, rate, ratio, setting
from inferometer.records import Precision

__all__ = [
    "Reason",
    "any_marked",
    "headlines",
    "marked",
    "missing",
    "overtaking",
    "place",
    "profile_words",
    "reasons",
    "single_words",
]

_NAMED = 3  # layers in a sentence
_ALIKE = 0.2  # Source: chosen; a profile whose sum is further from a call's time than this is told of

# Words in the names of what a runtime settles on that say how it runs, rather than what came of it.
_WAYS = frozenset(
    {"copies", "core", "execution", "graph", "hint", "mode", "pinning", "requests", "streams", "threads"}
)

# What each precision has instructions for, by the kernel's names of CPU features.
# Source: Intel SDM volume 1 (VNNI, AVX512-BF16, AVX512-FP16, AMX); the Arm ARM (DotProd, I8MM, BF16, FP16).
_FEATURES: Mapping[Precision, tuple[str, ...]] = {
    "int8": (
        "avx512_vnni", "avx_vnni", "avx_vnni_int8", "amx_int8", "asimddp", "i8mm", "svei8mm", "smei8i32",
    ),
    "bf16": ("avx512_bf16", "amx_bf16", "bf16", "svebf16"),
    "fp16": ("avx512_fp16", "amx_fp16", "asimdhp", "fphp", "asimdfhm"),
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """One sentence and what it is about; ``seconds`` of a call rank it, None where it is about no time."""

    about: str
    seconds: float | None
    text: str


def headlines(one: Explanation) -> tuple[str, ...]:
    """The verdict against what must be beaten, then against other float precisions."""
    first = f"{place(one)}: {judgement(one.gain)}:"
    lines = [f"{first} {rate(one.own.rate)} images/s against {rate(one.base.rate)}."]
    if one.others:
        own, base = _upper(one.own), _upper(one.base)
        asked = " that ran as asked" if any(is_marked(gain.baseline_mac_share) for gain in one.others) else ""
        lines[0] += (
            f" No float precision ran as asked there; {marked(one.base)} gave the highest rate."
            if is_marked(one.base.mac_share)
            else f" {base} is the fastest float precision there{asked}, which {own} must beat."
        )
    lines += [f"Also: {judgement(other)}." for other in one.others]
    return tuple(lines)


def any_marked(one: Explanation) -> bool:
    """Whether the mark stands anywhere in it, and so has to be explained."""
    others = (gain.baseline_mac_share for gain in one.others)
    return is_marked(one.own.mac_share, one.base.mac_share, *others)


def place(one: Explanation | Single) -> str:
    """``net on engine, cpu`` with the settings and the machine that tell it from others."""
    setup = one.setup
    parts = [setup.engine, setup.device, *(setting(*pair) for pair in setup.variant)]
    parts += [one.machine] if one.machine else []
    return f"{one.name} on {', '.join(parts)}{crew_text(setup)}"


def single_words(one: Single) -> str:
    """Why there is nothing to explain, and how to get it."""
    where, ran = place(one), [_at_batches(one, precision) for precision in one.precisions]
    if one.left_out is not None:
        rest = joined([_at_batches(one, other) for other in one.precisions if other != one.left_out])
        return (
            f"{where}: {_at_batches(one, one.left_out)} ran at no batch that is explained here, so that it is"
            f" not compared. Measure it at the same batches as {rest}."
        )
    if len(ran) > 1 and {"fp32", "int8"} & set(one.precisions):
        shared = (
            f"{joined(ran)} share no batch"
            if len(ran) == 2
            else f"of {joined(ran)}, none shares a batch with one that it is held against"
        )
        return f"{where}: {shared}, so there is nothing to compare. Measure them at the same batches."
    others = "int8" if "fp32" in one.precisions else "fp32"
    names = joined([precision.upper() for precision in one.precisions])
    return (
        f"{where}: only {names} gave a rate, so there is nothing to compare."
        f" Measure it beside {others}, at the same batches."
    )


def _at_batches(one: Single, precision: Precision) -> str:
    batches = one.batches[precision]
    word = "batch" if len(batches) == 1 else "batches"
    return f"{precision.upper()} ({word} {joined([str(batch) for batch in batches])})"


def profile_words(one: Explanation) -> str | None:
    """What the profiles' sums are against the time that a call took; None without profiles."""
    own, base = one.own, one.base
    if own.profile_s is None or base.profile_s is None:
        return None

    def side(at: Side) -> str:
        several = f" with {at.in_flight} requests in flight" if at.in_flight > 1 else ""
        return (
            f"of {_upper(at)} sum to {milliseconds(at.profile_s or 0)} ms, where a call took"
            f" {milliseconds(at.call_s)} ms{several} ({percent(at.covered or 0, 0)})"
        )

    by_profile = base.profile_s / own.profile_s
    text = (
        f"The layers of one call {side(base)}, {side(own)}. Nothing is scaled: the profiles' own ratio is"
        f" {ratio(by_profile)}, the measured one {ratio(one.gain.ratio)}."
    )
    if (by_profile - 1) * (one.gain.ratio - 1) < 0:
        text += " They disagree on which is faster, so that the layers do not explain what was measured."
    elif any(abs((at.covered or 0) - 1) > _ALIKE for at in (own, base)):
        text += " Read the layers as shares of a call, not as its milliseconds."
    return text


def reasons(one: Explanation) -> tuple[Reason, ...]:
    """What the figures show, by the seconds of a call; then what has no seconds.

    Layers that ran as asked rank by the time that they save or lose, all others by the time that they take.
    """
    timed = [_part(one, part) for part in one.parts]
    if one.slower:
        timed.append(_slower(one))
    timed.sort(key=lambda reason: -(reason.seconds or 0))
    words = profile_words(one)
    profile = Reason("profile", None, words) if words else None
    batch = Reason("batch", None, overtaking(one))
    rest = (_share(one), _bound(one), batch, *_machine(one), *_session(one), profile)
    return (*timed, *(reason for reason in rest if reason is not None))


def overtaking(one: Explanation) -> str:
    """At which batch it overtakes: between measured batches only, and by verdicts where there are any."""
    own, base = _upper(one.own), _upper(one.base)
    blind = all(at.verdict == "one repeat: no verdict" for at in one.batches)

    def state(ratio_: float, verdict: str) -> str:
        if blind:
            return "faster" if ratio_ > 1 else "slower"
        return verdict if verdict in ("faster", "slower") else "open"

    states = [(at.batch, state(at.ratio, at.verdict)) for at in one.batches]
    known = joined([f"{at.batch} ({ratio(at.ratio)})" for at in one.batches])
    by = ", by one repeat each, which supports no verdict" if blind else ""
    wins = [place_ for place_, (_, what) in enumerate(states) if what == "faster"]
    if len(states) == 1:
        return f"Both ran at batch {known} alone: at which batch {own} overtakes {base} is not known."
    if len(wins) == len(states):
        return f"{own} is ahead of {base} at every measured batch: {known}{by}."
    still = [str(batch) for batch, what in states if what == "open"]
    if all(at.verdict == "no difference seen" for at in one.batches):
        return f"No difference between {own} and {base} is seen at any measured batch: {known}."
    if len(still) == len(states):
        return f"There is no verdict at any batch: {known}; where {own} overtakes {base} is not known."
    if not wins and still:
        return f"No verdict has {own} ahead of {base}: {known}; at batch {joined(still)} there is none."
    if not wins:
        return f"{own} is ahead of {base} at no measured batch: {known}{by}."
    if wins == list(range(wins[0], len(states))):
        after = states[wins[0]][0]
        behind = [batch for batch, what in states[: wins[0]] if what == "slower"]
        none = f"; at batch {joined(still)} there is no verdict" if still else ""
        if not behind:
            return f"{own} is ahead of {base} from batch {after} on{none}: {known}."
        return f"{own} overtakes {base} between batch {behind[-1]} and {after}{none}: {known}{by}."
    ahead = joined([str(states[at][0]) for at in wins])
    lost = [str(batch) for batch, what in states if what == "slower"]
    not_at = f", not at {joined(lost)}" if lost else ""
    none = f", no verdict at {joined(still)}" if still else ""
    return f"{own} is ahead of {base} at batch {ahead}{not_at}{none}: {known}{by}."


def missing(one: Explanation) -> tuple[str, ...]:
    """What the store does not hold, and how to get it."""
    lines = []
    for side in (one.base, one.own):
        if side.why_no_profile is not None:
            lines.append(
                f"No times of layers for {_upper(side)} at batch {side.setup.batch}: {side.why_no_profile}."
            )
    if lines and any("largest batch" in line for line in lines):
        lines.append("Run a study whose largest batch is one that both precisions can run.")
    if one.gain.verdict == "one repeat: no verdict":
        lines.append("One repeat supports no verdict: measure with two repeats or more.")
    if one.gain.verdict == "inconclusive: machine changed":
        lines.append(
            "The machine changed between the two, so that times of layers do not compare either: stop other"
            " programs and measure again."
        )
    sides = [side for side in (one.base, one.own) if side.layers and not side.roles_told]
    if sides:
        which = joined([_upper(side) for side in sides])
        lines.append(
            f"The profile of {which} does not say which layers reorder or quantize: it is older than this"
            " version. They are among the layers without multiply-accumulates; measure again to tell."
        )
    unknown = next((part for part in one.parts if part.name == "unknown"), None)
    if unknown is not None:
        layers = plural(len(unknown.own_layers) + len(unknown.base_layers), "layer")
        lines.append(
            f"Whether {layers} of the two profiles multiply and accumulate is not known: the runtime does not"
            " tell."
        )
    return tuple(lines)


def _part(one: Explanation, part: Part) -> Reason:
    own, base = _upper(one.own), _upper(one.base)
    took = f"{_ms(part.base_s)} in {base}, {_ms(part.own_s)} in {own}"
    number = len(part.own_layers)
    if part.name == "at_precision":
        factor = f" ({ratio(part.base_s / part.own_s)})" if part.own_s > 0 else ""
        text = f"{_that_multiply(number)} ran in {own}: {took}{factor}."
        return Reason(part.name, abs(part.difference_s), text)
    if part.name == "otherwise":
        ran = joined(sorted({(layer.precision or "another").upper() for layer in part.own_layers}))
        text = f"{_that_multiply(number)} ran in {ran}, not in {own}: {took}."
    elif part.name == "unmatched":
        text = (
            f"Layers that multiply and have no counterpart in the other profile: {took}. Which of them gained"
            " is not known."
        )
    else:
        what = {
            "quantize": "Changing between floats and integers",
            "reorder": "Reorders to another layout or element type",
            "no_macs": "Layers without multiply-accumulates",
            "unknown": "Layers of which it is not known whether they multiply",
        }[part.name]
        text = f"{what}: {took}."
    return Reason(part.name, part.own_s, text + _longest(part.own_layers, part.own_s, own))


def _that_multiply(number: int) -> str:
    return plural(number, "layer that multiplies", "layers that multiply")


def _slower(one: Explanation) -> Reason:
    own, base = _upper(one.own), _upper(one.base)
    lost = sum(pair.own.seconds - pair.base.seconds for pair in one.slower)
    named = joined(
        [
            f"{pair.own.key} ({milliseconds(pair.base.seconds)} to {_ms(pair.own.seconds)})"
            for pair in one.slower[:_NAMED]
        ]
    )
    number, verb = len(one.slower), "is" if len(one.slower) == 1 else "are"
    text = (
        f"Of the layers in both profiles, {number} {verb} slower in {own} than in {base} ({LOSES:g} times or"
        f" more), by {_ms(lost)} together; most: {named}."
    )
    return Reason("slower", lost, text)


def _longest(layers: Sequence[Layer], total: float, precision: str) -> str:
    if not layers or total <= 0:
        return ""
    longest = sorted(layers, key=lambda layer: -layer.seconds)[:_NAMED]
    named = joined([f"{layer.key} ({_ms(layer.seconds)})" for layer in longest])
    return f" Longest in {precision}: {named}."


def _share(one: Explanation) -> Reason:
    own = one.own
    if own.mac_share is None:
        return Reason("mac_share", None, f"How many multiply-accumulates ran in {_upper(own)} is not known.")
    only = "Only " if is_marked(own.mac_share) else ""
    text = f"{only}{share_text(own.mac_share)} of the multiply-accumulates ran in {_upper(own)}"
    others = [
        f"{share_text(share)} in {name.upper()}"
        for name, share in (own.ran or {}).items()
        if name != own.setup.precision
    ]
    text += f" ({joined(others)})." if others else "."
    base = one.base
    if base.mac_share is not None and is_marked(base.mac_share):
        text += f" Of {_upper(base)}, {share_text(base.mac_share)} ran as asked: the ratio is not to it."
    return Reason("mac_share", None, text)


def _bound(one: Explanation) -> Reason | None:
    if one.bound is None:
        return None
    own, base = _upper(one.own), _upper(one.base)
    unknown = any(part.name == "unknown" and part.own_layers for part in one.parts)
    also = ", and those not known to," if unknown else ""
    text = (
        f"Even if all layers that multiply in {own}{also} took no time, {_ms(one.bound.rest_s)} would remain"
        f" of its call: at most {ratio(one.bound.ratio)} {base}, by the profiles."
    )
    return Reason("bound", None, text)


def _machine(one: Explanation) -> Iterator[Reason]:
    environment = one.environment or {}
    if one.own.setup.device != "cpu":
        gpus = environment.get("gpus")
        names = {str(gpu.get("name")) for gpu in gpus if isinstance(gpu, Mapping)} if gpus else set()
        if names:
            yield Reason("machine", None, f"The machine's GPUs: {joined(sorted(names))}.")
        return
    cpu = environment.get("cpu")
    features = cpu.get("features") if isinstance(cpu, Mapping) else None
    for precision in dict.fromkeys((one.own.setup.precision, one.base.setup.precision)):
        if precision in _FEATURES:
            yield Reason("machine", None, _instructions(one, precision, features))


def _instructions(one: Explanation, precision: Precision, features: Any) -> str:
    name, wanted = precision.upper(), _FEATURES[precision]
    if not isinstance(features, Sequence):
        return f"Whether the CPU has instructions for {name} is not known: the record does not say."
    there = [feature for feature in wanted if feature in features]
    if there:
        return f"The CPU has instructions for {name}: {joined(there)}."
    text = f"The CPU has no instruction for products in {name} (none of {', '.join(wanted)})."
    if precision == "int8" and "avx2" in features:
        # Source: Rodriguez et al., "Lower Numerical Precision Deep Learning Inference and Training" (Intel,
        # 2018): three instructions for four times as many numbers.
        text += (
            " With AVX alone, three instructions do the work of one on four times as many numbers: 1.33× at"
            " most in arithmetic."
        )
    if precision == "int8" and one.weight_bits is not None and one.weight_bits < 8:
        text += f" INT8 weights keep {one.weight_bits} bits here."
    return text


def _session(one: Explanation) -> Iterator[Reason]:
    """Nodes that ran elsewhere than asked, and ways of running that differ beside the precision."""
    own, base = one.own, one.base
    for side in (own, base):
        left = (side.session or {}).get("fallback")
        if isinstance(left, Sequence) and not isinstance(left, str) and left:
            named = joined([str(node) for node in left[:_NAMED]])
            text = f"In {_upper(side)}, nodes ran on another provider than asked, such as {named}."
            yield Reason("session", None, text)
    differ = []
    if own.in_flight != base.in_flight:
        differ.append(f"requests in flight {base.in_flight} and {own.in_flight}")
    if own.session is not None and base.session is not None:
        differ += [
            f"{key} {_told(base.session, key)} and {_told(own.session, key)}"
            for key in dict.fromkeys((*base.session, *own.session))
            if _WAYS & set(key.split("_")) and _told(base.session, key) != _told(own.session, key)
        ]
    if differ:
        both = f"{_upper(base)} and {_upper(own)}"
        yield Reason("session", None, f"The runtime did not run {both} alike: {'; '.join(differ)}.")


def _told(session: Mapping[str, Any], key: str) -> str:
    value = session.get(key, "not told")
    return str(value) if isinstance(value, str | int | float) else "other values"


def _upper(side: Side) -> str:
    return side.setup.precision.upper()


def marked(side: Side) -> str:
    """The precision's name, with the mark where it is due."""
    return with_mark(_upper(side), side.mac_share)


def _ms(seconds: float) -> str:
    return f"{milliseconds(seconds)} ms"
