"""From records to everything that a report shows: the one entrance for reports."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferometer.analysis.cautions import cautions
from inferometer.analysis.correctness import Top5, accuracy_row, differences
from inferometer.analysis.feeding import feeding_findings, feeding_rows
from inferometer.analysis.findings import findings
from inferometer.analysis.grouping import in_order, setups
from inferometer.analysis.loadgen import loadgen_rows
from inferometer.analysis.machines import machines_of
from inferometer.analysis.marks import asked_shares
from inferometer.analysis.power import power_rows
from inferometer.analysis.power_gains import power_gains
from inferometer.analysis.power_words import power_cautions, power_findings
from inferometer.analysis.probe import change_over_rounds
from inferometer.analysis.ratios import speed_ups
from inferometer.analysis.rows import (
    CalibrationRow,
    Finding,
    MachineChange,
    ModelRow,
    NotMeasured,
    Summary,
)
from inferometer.analysis.scaling import scaling_rows
from inferometer.analysis.scaling_words import scaling_cautions, scaling_findings
from inferometer.analysis.setup import Setup
from inferometer.analysis.speed import latency_row, throughput_row
from inferometer.analysis.wording import model_names
from inferometer.records import Kind, Record

__all__ = ["summarise"]


def summarise(records: Sequence[Record], top5: Top5, *, all_pairs: bool = False) -> Summary:
    """Everything that a report shows, derived from the records alone.

    Args:
        records: The final record of each trial, in the order of the store (``interrupted`` ones may
            stand among them: they are counted).
        top5: Gives the per-image outcome of an accuracy record, or None.
        all_pairs: Compare the accuracy of every two trials, not only of those that belong together.
    """
    machines, machine_index = machines_of(records)
    models = list(dict.fromkeys(record.trial.model for record in records))
    shares = asked_shares(records, machine_index)

    def of_kind(kind: Kind) -> list[tuple[Setup, list[Record]]]:
        ended = [record for record in records if record.status != "interrupted"]
        chosen = [record for record in ended if record.trial.kind == kind]
        grouped = setups(chosen, machine_index)
        return [(setup, grouped[setup]) for setup in sorted(grouped, key=lambda one: in_order(one, models))]

    by_id = {record.id: record for record in records}
    rated = of_kind("throughput")
    throughput = tuple(throughput_row(setup, members) for setup, members in rated)
    power = power_rows(rated)
    scored = [(setup, record) for setup, members in of_kind("accuracy") for record in members]
    times = sorted(record.time for record in records)
    summary = Summary(
        studies=tuple(dict.fromkeys(record.trial.study for record in records)),
        names=model_names(models),
        started=times[0] if times else None,
        ended=times[-1] if times else None,
        trials=len(records),
        statuses=dict(Counter(record.status for record in records)),
        machines=machines,
        throughput=throughput,
        speed_ups=speed_ups(throughput, by_id),
        latency=tuple(
            latency_row(setup, members, _least(shares, members)) for setup, members in of_kind("latency")
        ),
        accuracy=tuple(accuracy_row(setup, record, shares[record.id]) for setup, record in scored),
        differences=differences(scored, top5, shares, all_pairs=all_pairs),
        models=_models(records),
        calibrations=_calibrations(records),
        not_measured=_not_measured(records, machine_index),
        machine_change=_machine_change(records, machine_index),
        findings=(),
        cautions=(),
        loadgen=loadgen_rows(records, machine_index, models, shares),
        power=power,
        power_gains=power_gains(power, by_id),
        scaling=scaling_rows(throughput, by_id, power),
        feeding=feeding_rows(throughput, by_id),
    )
    return replace(summary, findings=_findings(summary), cautions=_cautions(summary, records))


def _findings(summary: Summary) -> tuple[Finding, ...]:
    return (
        *findings(summary),
        *scaling_findings(summary),
        *feeding_findings(summary),
        *power_findings(summary),
    )


def _cautions(summary: Summary, records: Sequence[Record]) -> tuple[str, ...]:
    return (*cautions(summary, records), *scaling_cautions(summary, records), *power_cautions(summary))


def _least(shares: Mapping[str, float | None], records: Sequence[Record]) -> float | None:
    known = [share for record in records if (share := shares[record.id]) is not None]
    return min(known, default=None)


def _machine_change(records: Sequence[Record], machines: dict[str, int]) -> MachineChange | None:
    """Of the machine that changed most; machines are never held against one another."""
    own: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        if record.status == "ok":
            own[machines[record.id]].append(record)
    changes = [change for members in own.values() if (change := change_over_rounds(members))]
    return max(changes, key=lambda one: one.severity, default=None)


def _models(records: Sequence[Record]) -> tuple[ModelRow, ...]:
    found = {
        (record.trial.model, record.model.sha256): ModelRow(
            record.trial.model, record.model.sha256, record.model.macs, record.model.parameters
        )
        for record in records
        if record.model is not None
    }
    return tuple(found.values())


def _calibrations(records: Sequence[Record]) -> tuple[CalibrationRow, ...]:
    """Those of the INT8 trials, which know the scheme; of calibration trials only what no other shows."""
    known = [record for record in records if record.calibration is not None]
    used = [record for record in known if record.trial.kind != "calibration"]
    tables = {record.calibration.table_sha256 for record in used if record.calibration}
    alone = [
        record
        for record in known
        if record.trial.kind == "calibration"
        and record.calibration
        and record.calibration.table_sha256 not in tables
    ]
    rows = [
        CalibrationRow(
            model=record.trial.model,
            engine=record.trial.engine,
            source=record.calibration.source,
            method=record.calibration.method,
            images=record.calibration.images,
            scheme=record.calibration.scheme,
            weight_bits=record.calibration.weight_bits,
            table_sha256=record.calibration.table_sha256,
            reason=record.calibration.reason,
        )
        for record in (*used, *alone)
        if record.calibration
    ]
    return tuple(dict.fromkeys(rows))


def _not_measured(records: Sequence[Record], machines: dict[str, int]) -> tuple[NotMeasured, ...]:
    counts: Counter[tuple[object, ...]] = Counter()
    first: dict[tuple[object, ...], tuple[Setup, Record]] = {}
    kinds: dict[Kind, list[Record]] = defaultdict(list)
    for record in records:
        kinds[record.trial.kind].append(record)
    grouped = (setups(members, machines) for members in kinds.values())
    # By object: an interrupted record shares its id with the one that took its place.
    of = {id(record): setup for found in grouped for setup, members in found.items() for record in members}
    for record in records:
        if record.status == "ok":
            continue
        setup = of[id(record)]
        key = (record.trial.kind, setup, record.status, record.reason)
        counts[key] += 1
        first.setdefault(key, (setup, record))
    return tuple(
        NotMeasured(record.trial.kind, setup, record.status, record.reason, counts[key])
        for key, (setup, record) in first.items()
    )
