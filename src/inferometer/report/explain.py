"""An explanation as tables, and as one document for a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from inferometer.analysis.explain_advice import advice
from inferometer.analysis.explain_layers import Layer, PairedLayers
from inferometer.analysis.explain_rows import Explanation, PartName, Side, Single
from inferometer.analysis.explain_words import (
    headlines,
    marked,
    missing,
    overtaking,
    place,
    reasons,
    single_words,
)
from inferometer.analysis.marks import ran_text
from inferometer.analysis.wording import milliseconds, percent, ratio
from inferometer.report.cells import NONE, Cell, Column, Table, mark_note

__all__ = ["document", "explanation_tables", "longest"]

_SHOWN = 12  # layers in a table

_PARTS: dict[PartName, str] = {
    "at_precision": "multiply, in {own}",
    "otherwise": "multiply, not in {own}",
    "unmatched": "multiply, no counterpart",
    "quantize": "to and from integers",
    "reorder": "reorders",
    "no_macs": "do not multiply",
    "unknown": "not known to multiply",
}


def explanation_tables(one: Explanation, number: int = 1) -> tuple[Table, ...]:
    """Where a call's time goes at both precisions, and its longest layers; none without profiles.

    Args:
        one: The explanation.
        number: Tells its tables from others' on a page.
    """
    return (_parts(one, number), _layers(one, number)) if one.parts else ()


def longest(
    one: Explanation, most: int = _SHOWN
) -> list[tuple[Layer | None, Layer | None, PairedLayers | None]]:
    """The layers that take longest at either precision: (baseline's, own, the pair that they are)."""
    rows: list[tuple[Layer | None, Layer | None, PairedLayers | None]] = [
        (pair.base, pair.own, pair) for pair in one.pairs
    ]
    taken = {id(layer) for pair in one.pairs for layer in (pair.base, pair.own)}
    rows += [(layer, None, None) for layer in one.base.layers if id(layer) not in taken]
    rows += [(None, layer, None) for layer in one.own.layers if id(layer) not in taken]
    rows.sort(key=lambda row: -max(layer.seconds for layer in row[:2] if layer is not None))
    return rows[:most]


def document(found: Sequence[Explanation], singles: Sequence[Single]) -> dict[str, Any]:
    """Everything, as plain values: seconds, fractions, images/s."""
    return {
        "explanations": [_explanation(one) for one in found],
        "not_compared": [
            {
                "model": one.setup.model,
                "engine": one.setup.engine,
                "device": one.setup.device,
                "machine": one.setup.machine + 1,
                "settings": dict(one.setup.variant),
                "precisions": list(one.precisions),
                "batches": {precision: list(batches) for precision, batches in one.batches.items()},
                "sentence": single_words(one),
            }
            for one in singles
        ],
    }


def _explanation(one: Explanation) -> dict[str, Any]:
    setup = one.own.setup
    return {
        "model": setup.model,
        "engine": setup.engine,
        "device": setup.device,
        "machine": setup.machine + 1,
        "settings": dict(setup.variant),
        "precision": setup.precision,
        "baseline": one.base.setup.precision,
        "batch": setup.batch,
        "place": place(one),
        "headlines": list(headlines(one)),
        "ratio": _ratio(one.gain),
        "other_ratios": [_ratio(other) for other in one.others],
        "reasons": [asdict(reason) for reason in reasons(one)],
        "advice": list(advice(one)),
        "missing": list(missing(one)),
        "overtaking": overtaking(one),
        "batches": [asdict(at) for at in one.batches],
        "bound": asdict(one.bound) if one.bound else None,
        "parts": [
            {"part": part.name, "base_s": part.base_s, "own_s": part.own_s, "difference_s": part.difference_s,
             "base_layers": len(part.base_layers), "own_layers": len(part.own_layers)}
            for part in one.parts
        ],
        "pairs": [_pair(pair) for pair in one.pairs],
        "slower": [_pair(pair) for pair in one.slower],
        "base": _side(one.base),
        "own": _side(one.own),
    }  # fmt: skip


def _ratio(gain: Any) -> dict[str, Any]:
    return {
        "baseline": gain.baseline,
        "ratio": gain.ratio,
        "ci95": list(gain.interval) if gain.interval else None,
        "p": gain.p,
        "repeats": list(gain.repeats),
        "verdict": gain.verdict,
    }


def _pair(pair: PairedLayers) -> dict[str, Any]:
    return {
        "base": pair.base.name,
        "own": pair.own.name,
        "by": pair.by,
        "macs": pair.own.macs,
        "base_s": pair.base.seconds,
        "own_s": pair.own.seconds,
        "base_precision": pair.base.precision,
        "own_precision": pair.own.precision,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "precision": side.setup.precision,
        "record": side.record_id,
        "images_per_s": side.rate,
        "precision_mac_share": dict(side.ran) if side.ran is not None else None,
        "mac_share": side.mac_share,
        "in_flight": side.in_flight,
        "call_s": side.call_s,
        "profile_s": side.profile_s,
        "profile_share_of_call": side.covered,
        "session": dict(side.session) if side.session is not None else None,
        "layers": [asdict(layer) for layer in side.layers],
        "missing": side.why_no_profile,
    }


def _parts(one: Explanation, number: int) -> Table:
    own, base = marked(one.own), marked(one.base)
    total = (one.base.profile_s or 0.0, one.own.profile_s or 0.0)
    rows = [
        (
            _PARTS[part.name].format(own=one.own.setup.precision.upper()),
            part.base_s,
            part.own_s,
            part.own_layers,
        )
        for part in one.parts
    ]

    def cells(name: str, base_s: float, own_s: float, layers: int | None) -> tuple[Cell, ...]:
        share = own_s / total[1] if total[1] else 0.0
        return (
            Cell(name, name),
            _seconds(base_s),
            _seconds(own_s),
            Cell(_signed(own_s - base_s), own_s - base_s),
            Cell(percent(share, 0), share),
            Cell(NONE, None) if layers is None else Cell(str(layers), layers),
        )

    made = [cells(name, base_s, own_s, len(layers)) for name, base_s, own_s, layers in rows]
    made.append(cells("sum of the layers", *total, sum(len(row[3]) for row in rows)))
    calls = (one.base.call_s, one.own.call_s)
    made.append((*cells("a call, measured", *calls, None)[:4], Cell(NONE, None), Cell(NONE, None)))
    note = (
        f"Of one call at batch {one.own.setup.batch}, by the runtime's own profile; layers multiply that"
        " have multiply-accumulates. Nothing is scaled to the time that a call took when it was measured."
    )
    return Table(
        f"parts-{number}",
        "Where a call's time goes",
        (
            Column("Layers that", header=True),
            Column(base, "ms", "right"),
            Column(own, "ms", "right"),
            Column("Change", "ms", "right"),
            Column("Share", one.own.setup.precision.upper(), "right", spare=1),
            Column("Layers", None, "right", spare=2),
        ),
        tuple(made),
        note + mark_note(one.own.mac_share, one.base.mac_share) + _ran(one),
    )


def _ran(one: Explanation) -> str:
    """What ran, in words, where the mark is explained."""
    sides = [side for side in (one.base, one.own) if mark_note(side.mac_share)]
    return "".join(f" Ran: {ran_text(side.mac_share, side.setup.precision)}." for side in sides)


def _layers(one: Explanation, number: int) -> Table:
    rows = longest(one)

    def cells(base: Layer | None, own: Layer | None, pair: PairedLayers | None) -> tuple[Cell, ...]:
        layer = own or base
        assert layer is not None, "a row has a layer on one side at least"
        factor = pair.base.seconds / pair.own.seconds if pair and pair.own.seconds else None
        return (
            Cell(layer.key, layer.name),
            Cell(layer.op, layer.op),
            _seconds(base.seconds if base else None),
            _seconds(own.seconds if own else None),
            Cell(ratio(factor), factor, "bad" if pair in one.slower else "plain")
            if factor is not None
            else Cell(NONE, None),
            Cell(pair.by, pair.by) if pair else Cell("not", None, "muted"),
        )

    left = len(one.pairs) + len(one.base.layers) + len(one.own.layers) - 2 * len(one.pairs) - len(rows)
    note = (
        "Matched by name (and multiply-accumulates), or by order among layers of one kind and size. What a"
        " runtime computes within a layer may differ between precisions."
    )
    return Table(
        f"layers-{number}",
        "The longest layers",
        (
            Column("Layer", header=True, prose=True),
            Column("Operator", spare=2),
            Column(marked(one.base), "ms", "right"),
            Column(marked(one.own), "ms", "right"),
            Column("Ratio", None, "right"),
            Column("Matched", spare=1),
        ),
        tuple(cells(*row) for row in rows),
        (f"{left} shorter ones are not shown. " if left > 0 else "") + note,
    )


def _seconds(value: float | None) -> Cell:
    return Cell(NONE, None) if value is None else Cell(milliseconds(value), value)


def _signed(seconds: float) -> str:
    sign = "+" if seconds > 0 else "\N{MINUS SIGN}" if seconds < 0 else ""
    return f"{sign}{milliseconds(abs(seconds))}"
