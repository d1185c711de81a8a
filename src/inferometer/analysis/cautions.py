"""What a reader must know before believing the numbers: computed sentences, gravest first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from inferometer.analysis.findings import crew_text, pair_settings, pair_text, settings_text
from inferometer.analysis.marks import MARK, is_marked, share_text
from inferometer.analysis.rows import MachineChange, Setup, Summary
from inferometer.analysis.speed import timed_calls
from inferometer.analysis.wording import (
    count,
    joined,
    percent,
    plural,
    significant,
)
from inferometer.records import Precision, Record

__all__ = ["cautions", "listed", "named"]

_SHOWN = 4
_ADVICE = "Stop other programs and measure again."

DISTURBING_SHARE = 0.1
"""Share of the usable cores from which load by other processes is said. Source: chosen."""

FEW_CALLS = 10
"""A throughput trial that timed fewer calls than this is told of. Source: chosen."""


def cautions(summary: Summary, records: Sequence[Record]) -> tuple[str, ...]:
    """Sentences about what limits the results of ``summary``, which was made from ``records``."""
    rules: tuple[Callable[[Summary, Sequence[Record]], Iterable[str]], ...] = (
        _mixed_origin,
        _machine,
        _load_by_others,
        _few_repeats,
        _few_calls,
        _repeated_twice,
        _synthetic_calibration,
        _not_at_precision,
        _weak_int8,
        _lost_trials,
        _unsteady,
        _loadgen,
        _skipped_images,
        _left_out,
    )
    return tuple(sentence for rule in rules for sentence in rule(summary, records))


def _mixed_origin(summary: Summary, records: Sequence[Record]) -> Iterable[str]:
    if len(summary.machines) > 1:
        hosts = {one.host for record in records if record.trial.ranks > 1 for one in record.ranks}
        never = "pooled or compared here"
        if len(hosts) > 1:
            never = "pooled here, and compared only with what their devices do together"
        yield f"The records come from {len(summary.machines)} machines: their trials are never {never}."
    if len(summary.studies) > 1:
        yield f"The records belong to {len(summary.studies)} studies: {joined(summary.studies)}."
    copies = {record.trial.copies for record in records if record.trial.kind in ("throughput", "latency")}
    if len(copies) > 1:
        yield "Some rates include the transfers between host and device, others do not: see the settings."


def _machine(summary: Summary, records: Sequence[Record]) -> Iterable[str]:
    change = summary.machine_change
    if change is not None and change.changed:
        held = [one.verdict for one in summary.speed_ups if one.held]
        told = bool(held) and "inconclusive: machine changed" not in held
        advice = f" {_ADVICE}" if change.change is not None and not told else ""
        yield f"The machine changed while it was measured: {_probe(change)}.{advice}"
    judged = [one.verdict for one in summary.speed_ups if one.p is not None]
    lost = judged.count("inconclusive: machine changed")
    stand = sum(one.held and one.verdict in ("faster", "slower") for one in summary.speed_ups)
    if stand:
        yield (
            f"The machine's own probe differed between the two sides of {plural(stand, 'ratio')}, which"
            f" {'is' if stand == 1 else 'are'} told from 1 with it held at one speed as well."
        )
    if lost:
        yield (
            f"{count(lost)} of {plural(len(judged), 'ratio')} {'is' if lost == 1 else 'are'} inconclusive:"
            f" the machine's own probe differed too much between the two sides. {_ADVICE}"
        )
    timed = [r for r in records if r.status == "ok" and r.trial.kind in ("throughput", "latency")]
    blind = sum(record.probe is None for record in timed)
    if blind:
        yield (
            f"{count(blind)} of {plural(len(timed), 'timed trial')} came without the machine's probe:"
            " a change of the machine would go unseen there."
        )


def _load_by_others(_: Summary, records: Sequence[Record]) -> Iterable[str]:
    timed = [r for r in records if r.status == "ok" and r.trial.kind in ("throughput", "latency")]
    loads = [(_busy_cores(record), (record.environment or {}).get("usable_cores")) for record in timed]
    disturbed = [
        busy for busy, cores in loads if busy is not None and cores and busy > DISTURBING_SHARE * cores
    ]
    if disturbed:
        yield (
            f"Other processes kept up to {significant(max(disturbed))} cores busy during"
            f" {count(len(disturbed))} of {plural(len(timed), 'timed trial')}: those rates may be too low."
        )


def _busy_cores(record: Record) -> float | None:
    load = (record.state or {}).get("load")
    value = load.get("busy_cores") if isinstance(load, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _probe(change: MachineChange) -> str:
    if change.change is None or change.limit is None or change.low is None or change.high is None:
        return change.reason or "its probe's readings do not compare"
    return (
        f"the medians of its {change.probe} probe per round of repeats ranged from"
        f" {significant(change.low / 1e9)} to {significant(change.high / 1e9)} GB/s,"
        f" {percent(change.change, 0)} apart where more than {percent(change.limit, 0)} counts as a change"
    )


def _few_repeats(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    single = sum(len(row.repeats) == 1 for row in summary.throughput)
    if single:
        yield (
            f"{plural(single, 'throughput row')} {'rests' if single == 1 else 'rest'} on one repeat: the"
            " interval shown is that run's own and supports no verdict. Use two repeats or more."
        )


def _few_calls(_: Summary, records: Sequence[Record]) -> Iterable[str]:
    ran = [
        calls // one.trial.ranks  # of each rank
        for one in records
        if one.status == "ok" and (calls := timed_calls(one)) is not None
    ]
    few = sum(calls < FEW_CALLS for calls in ran)
    if few:
        yield (
            f"{count(few)} of {plural(len(ran), 'throughput trial')} timed fewer than ten calls"
            f" (least {count(min(ran))}): measure longer (measure.max_s) before relying on"
            f" {'it' if few == 1 else 'them'}."
        )


def _repeated_twice(summary: Summary, records: Sequence[Record]) -> Iterable[str]:
    by_id = {record.id: record for record in records}
    for row in summary.throughput:
        numbers = Counter(by_id[name].trial.repeat for name in row.record_ids)
        if max(numbers.values()) > 1:
            yield (
                f"{named(summary, row.setup)}: several records claim the same repeat; they are shown"
                " together, and what tells them apart is not known."
            )


def _synthetic_calibration(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    models = [row.model for row in summary.calibrations if row.source == "synthetic"]
    if models:
        yield (
            f"INT8 of {listed(summary.names[model] for model in models)} was calibrated on synthetic input:"
            " it shows speed only. For accuracy, calibrate on real images."
        )


def _not_at_precision(summary: Summary, records: Sequence[Record]) -> Iterable[str]:
    ran = {record.id: record.precision_mac_share for record in records}
    several = len({row.setup.engine for row in summary.throughput}) > 1
    little: dict[tuple[str, Precision], list[tuple[float, str]]] = defaultdict(list)
    unknown: dict[str, list[str]] = defaultdict(list)
    for row in summary.throughput:
        name, precision = summary.names[row.setup.model], row.setup.precision
        if not row.repeats:
            continue
        if row.mac_share is None:
            if precision != "fp32":
                unknown[row.mac_share_missing or "the record does not say"].append(name)
        elif is_marked(row.mac_share):
            where = (f"{name} on {row.setup.engine}" if several else name) + settings_text(row.setup)
            if len(summary.machines) > 1:
                where += f" on machine {row.setup.machine + 1}"
            instead = _instead(precision, [ran[one] for one in row.record_ids])
            little[where, precision].append((row.mac_share, instead))
    for (where, asked), shares in little.items():
        least, instead = min(shares)
        yield (
            f"{where} was asked to run in {asked.upper()}, but only {share_text(least)} of its"
            f" multiply-accumulates did{instead}: its {asked.upper()} figures, marked {MARK}, are not those"
            f" of {asked.upper()} alone."
        )
    for reason, models in unknown.items():
        yield f"How much of {listed(models)} ran at the precision asked for is not known: {reason}."


def _instead(asked: Precision, ran: Iterable[Mapping[str, float] | None]) -> str:
    """What ran in place of the precision asked for, the largest first, where that was least."""
    known = [one for one in ran if one is not None]
    worst = min(known, key=lambda one: one.get(asked, 0.0), default={})
    others = sorted(((share, name) for name, share in worst.items() if name != asked), reverse=True)
    return (
        f" ({joined([f'{share_text(share)} ran in {name.upper()}' for share, name in others])})"
        if others
        else ""
    )


def _weak_int8(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    on_cpu = {
        row.setup.machine
        for row in summary.throughput
        if row.setup.precision == "int8" and row.setup.device == "cpu" and row.repeats
    }
    weak = [index for index in sorted(on_cpu) if summary.machines[index].int8_dot is False]
    narrow = [row for row in summary.calibrations if row.weight_bits is not None and row.weight_bits < 8]
    # Which machine a calibration served is not known: the two facts are one only where there is one machine.
    explained = bool(weak) and len(summary.machines) == 1 and len({row.weight_bits for row in narrow}) == 1
    for index in weak:
        so = ""
        if explained:
            names = listed(summary.names[row.model] for row in narrow)
            so = f", so that INT8 of {names} uses {narrow[0].weight_bits}-bit weights"
        yield (
            f"This CPU ({summary.machines[index].title}) has no INT8 dot-product instruction{so}:"
            " on one that has it, INT8 gains more."
        )
    if explained:
        return
    reasons: dict[str, list[str]] = defaultdict(list)
    for row in narrow:
        why = f": {row.reason}" if row.reason else ""
        reasons[f"{row.weight_bits}-bit weights{why}"].append(summary.names[row.model])
    for what, models in reasons.items():
        yield f"INT8 of {listed(models)} uses {what}."


def _lost_trials(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    words: Mapping[str, tuple[str, str]] = {
        "failed": ("failed", "failed"),
        "timeout": ("ran into the time limit", "ran into the time limit"),
        "out_of_memory": ("ran out of memory", "ran out of memory"),
        "unsupported": ("is not supported", "are not supported"),
        "skipped": ("was skipped", "were skipped"),
        "interrupted": ("was interrupted", "were interrupted"),
    }
    counts = {str(status): number for status, number in summary.statuses.items()}
    lost = [
        f"{count(counts[name])} {text[counts[name] > 1]}" for name, text in words.items() if name in counts
    ]
    if lost:
        yield f"Of {plural(summary.trials, 'trial')}, {joined(lost)}: see the trials without a number."


def _unsteady(_: Summary, records: Sequence[Record]) -> Iterable[str]:
    ran = [record.throughput for record in records if record.throughput]
    unsteady = sum(not one.warmup_steady for one in ran)
    if unsteady:
        yield (
            f"{count(unsteady)} of {plural(len(ran), 'throughput trial')} had not reached a steady rate"
            " when the warm-up ended: their rates may still have been drifting."
        )


def _loadgen(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    runs, valid = sum(row.runs for row in summary.loadgen), sum(row.valid for row in summary.loadgen)
    if valid < runs:
        reasons = list(dict.fromkeys(row.invalid_reason for row in summary.loadgen if row.invalid_reason))
        yield (
            f"LoadGen calls {runs - valid} of {plural(runs, 'run')} INVALID"
            + (f" ({'; '.join(reasons)})" if reasons else "")
            + ": give it more time by measure.max_s in the study."
        )
    single = sum(row.runs == 1 for row in summary.loadgen)
    if single:
        yield f"{plural(single, 'LoadGen row')} {'rests' if single == 1 else 'rest'} on one repeat."


def _skipped_images(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    seen: set[tuple[str, int, tuple[str, ...]]] = set()
    for row in summary.accuracy:
        which = (row.setup.model, row.skipped or 0, row.skipped_files)
        if row.skipped and which not in seen:
            seen.add(which)
            files = f": {listed(row.skipped_files)}" if row.skipped_files else ""
            yield (
                f"{plural(row.skipped, 'image')} for {summary.names[row.setup.model]} could not be"
                f" decoded and {'counts' if row.skipped == 1 else 'count'} nowhere{files}."
            )


def _left_out(summary: Summary, _: Sequence[Record]) -> Iterable[str]:
    for row in summary.differences:
        if row.metric == "top1" and row.left_out:
            yield (
                f"{pair_text(summary, row)}{pair_settings(row)}: {plural(row.left_out, 'image')} that"
                " only one of the two has seen are not part of the comparison."
            )


def named(summary: Summary, setup: Setup) -> str:
    """A setup in words: ``ResNet-50 in INT8 at batch 8``."""
    batch = f" at batch {setup.batch}" if setup.batch is not None else ""
    where = batch + crew_text(setup) + settings_text(setup)
    return f"{summary.names[setup.model]} in {setup.precision.upper()}{where}"


def listed(words: Iterable[str]) -> str:
    """Different words in a row; of many the first few, and how many others."""
    known = list(dict.fromkeys(words))
    if len(known) > _SHOWN:
        known = [*known[: _SHOWN - 1], f"{count(len(known) - _SHOWN + 1)} others"]
    return joined(known)
