"""Opening the session that a trial measures: the float model, or its QDQ form at ``int8``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inferometer import __version__, registry
from inferometer.contracts import Engine, QdqScheme, Session
from inferometer.environment.process import release_memory
from inferometer.errors import CalibrationError
from inferometer.models.files import load as load_model
from inferometer.models.files import save
from inferometer.quantize.graph import prepare
from inferometer.quantize.insert import calibration_of, insert_qdq
from inferometer.quantize.table import CalibrationTable
from inferometer.records import CalibrationInfo
from inferometer.trials.memory import PeakMemory
from inferometer.trials.spec import TrialSpec

__all__ = ["Opened", "Told", "open_session", "prepare_model", "quantized_file", "what_it_tells"]


@dataclass(frozen=True)
class Opened:
    """A loaded session, the seconds its loading took, where its ranges came from, and its memory since."""

    session: Session
    load_s: float
    calibration: CalibrationInfo | None
    peak: PeakMemory


def open_session(spec: TrialSpec, batch: int) -> Opened:
    """Load the trial's model on its engine; those not about throughput run one request at a time, and say so.

    Building the QDQ file is part of neither ``load_s`` nor the peak of memory: it happens once per study.
    """
    engine = registry.engine(spec.trial.engine)
    path, info = _model_file(spec, engine)
    options = dict(spec.options)
    if not spec.keeps_many_in_flight:
        options["in_flight"] = 1
    if spec.trial.copies == "excluded":
        options["copies"] = "excluded"
    release_memory()
    peak, begin = PeakMemory(), time.monotonic()
    session = engine.load(path, spec.trial.device, spec.trial.precision, batch, options)
    return Opened(session, time.monotonic() - begin, info, peak)


def prepare_model(spec: TrialSpec) -> None:
    """Write the file that the trial's session is loaded from, where it has to be made."""
    _model_file(spec, registry.engine(spec.trial.engine))


@dataclass(frozen=True)
class Told:
    """What a session says of itself, as the record has it."""

    session: dict[str, Any] | None
    compile_s: float | None


def what_it_tells(session: Session) -> tuple[Told, dict[str, str]]:
    """How a session runs, and the reasons for what it does not tell."""
    told = Told(dict(session.settled) or None, session.compile_s)
    missing = {}
    if told.compile_s is None:
        missing["compile_s"] = "the engine does not tell it apart from loading"
    if told.session is None:
        missing["session"] = "the engine does not tell how it runs"
    return told, missing


def quantized_file(spec: TrialSpec, table: CalibrationTable, scheme: QdqScheme) -> Path:
    """The QDQ form of the trial's model under ``scheme``; built once, then found again."""
    content = f"{spec.model.sha256[:12]}-{table.content_sha256()[:12]}"
    form = f"{scheme.name}-w{scheme.weight_bits}-{__version__}"
    path = Path(spec.folder) / "models" / f"{content}-{form}.onnx"
    if not path.exists():
        table.check_model(spec.model.sha256)
        save(insert_qdq(prepare(load_model(Path(spec.model_path))), table, scheme), path)
    return path


def _model_file(spec: TrialSpec, engine: Engine) -> tuple[Path, CalibrationInfo | None]:
    path = Path(spec.model_path)
    if spec.trial.precision != "int8":
        return path, None
    if spec.quantized:
        note = calibration_of(load_model(path))
        return path, CalibrationInfo(
            table_sha256=note.table_sha256 if note else None,
            source="model",
            method=note.method if note else None,
            images=note.images if note else None,
        )
    scheme = engine.qdq_scheme(spec.trial.device, spec.options)
    if scheme is None:
        return path, None
    if spec.table is None:
        raise CalibrationError(f"{spec.trial.model}: int8 on {engine.name} needs a calibration table")
    table = CalibrationTable.load(Path(spec.table))
    return quantized_file(spec, table, scheme), CalibrationInfo(
        table_sha256=table.content_sha256(),
        source=table.source,
        method=table.method,
        images=table.images,
        scheme=scheme.name,
        weight_bits=scheme.weight_bits,
        reason=scheme.reason,
    )
