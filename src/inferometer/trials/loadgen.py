"""LoadGen trials: MLPerf's LoadGen asks, times and judges; what it says is kept, and its logs beside it.

Its figures are measured with MLPerf's LoadGen; they are not MLPerf results, which obey rules on model, data,
number of samples, accuracy and review. The clock is LoadGen's, and the figures are labelled so.
"""

from __future__ import annotations

import gc
import math
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Literal

from inferometer.contracts import Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.errors import EngineError, MissingExtra
from inferometer.measure import warm_up
from inferometer.records import LoadGenResult, Outcome, Sidecar
from inferometer.store import write_sidecar
from inferometer.trials.loadgen_log import read_log
from inferometer.trials.session import open_session, what_it_tells
from inferometer.trials.spec import TrialSpec

__all__ = ["LOGS", "ask", "loadgen_library", "run_loadgen"]

LOGS = ("mlperf_log_summary.txt", "mlperf_log_detail.txt", "mlperf_log_accuracy.json")
"""The files that LoadGen leaves; the last is empty where accuracy is not measured, as here."""

Scenario = Literal["offline", "single-stream"]

# All samples of an offline run are issued at its beginning: so many times what the warm-up's rate asks for,
# so that a run that turns out faster still lasts as long as it must. Chosen; LoadGen's own is 1.1.
_SLACK = 1.35
# LoadGen makes all queries before the first, of about 0.1 kB a sample and 0.4 kB a query (measured). A run
# too fast for so many ends early, and LoadGen calls it INVALID.
_MAX_SAMPLES, _MAX_QUERIES = 2_000_000, 500_000
# The fewest queries from which LoadGen estimates a 90th percentile. Source: its early_stopping.cc and log.
_MIN_QUERIES = 64


def run_loadgen(spec: TrialSpec) -> Outcome:
    """Have LoadGen measure one point; memory is that before it starts, whose queries would count else."""
    batch, section = spec.trial.batch, spec.loadgen
    assert batch is not None, "planning gives every LoadGen trial a batch"
    assert section is not None, "planning gives every LoadGen trial its scenario"
    loadgen_library()
    opened = open_session(spec, batch)
    with opened.session as session:
        feeds = synthetic_feeds(session.inputs, spec.seed, ranges=spec.ranges)
        for slot in range(session.in_flight):
            session.prepare(slot, feeds)
        rate = _warm_rate(session, section.scenario, spec.measure.warmup_max_s)
        memory, missing = opened.peak.taken(spec.trial.device, session.device_peak_bytes())
        with tempfile.TemporaryDirectory(prefix="loadgen-", dir=Path(spec.folder) / "work") as folder:
            found = ask(session, batch, section.scenario, spec.measure.max_s, rate, Path(folder))
            sidecars = tuple(_kept(spec, Path(folder) / name) for name in LOGS)
        told, untold = what_it_tells(session)
    missing |= untold
    missing["precision_mac_share"] = "read back in the throughput trials"
    for name in ("p50", "p90", "p95", "p99") if found.latency_s else ():
        if getattr(found.latency_s, name) is None:
            missing[f"loadgen.latency_s.{name}"] = f"{found.queries} queries are too few for this percentile"
    if found.latency_s and found.p90_estimate_s is None:
        missing["loadgen.p90_estimate_s"] = f"{found.queries} queries are too few for LoadGen's estimate"
    return Outcome(
        status="ok",
        loadgen=found,
        memory=memory,
        load_s=opened.load_s,
        compile_s=told.compile_s,
        session=told.session,
        calibration=opened.calibration,
        sidecars=sidecars,
        missing=missing,
    )


def ask(
    session: Session, batch: int, scenario: Scenario, seconds: float, rate: float, folder: Path
) -> LoadGenResult:
    """Let LoadGen drive a session whose slots are prepared.

    A sample is one image; the library of samples is the prepared batch, and LoadGen goes through it again
    and again, so that so many samples in a row are the batch. Offline every slot is kept busy, by a thread
    that is not LoadGen's. In a single stream the call is made on LoadGen's own thread, which it allows and
    waits for: handing it to another would add that to the latency.

    Args:
        session: At ``batch``; ``single-stream`` uses slot 0 alone: a query is one call, whatever the batch.
        batch: Images per call.
        scenario: LoadGen's.
        seconds: The least length of the run.
        rate: Calls/s to expect, of all slots together.
        folder: An existing one for LoadGen's logs.

    Raises:
        MissingExtra: LoadGen is not installed.
        InferometerError: The session failed meanwhile, or LoadGen gave no result.
    """
    library = loadgen_library()
    system = _System(library, session, batch, session.in_flight if scenario == "offline" else 1)
    settings = _settings(library, batch, scenario, seconds, rate)
    issue = system.all_at_once if scenario == "offline" else system.one
    with _constructed(library, issue, batch if scenario == "offline" else 1) as (sut, samples), system:
        # The last argument names a file that would change the settings: none does.
        none = str(folder / "audit.config")
        library.StartTestWithLogSettings(sut, samples, settings, _logging(library, folder), none)
    return read_log((folder / LOGS[1]).read_text(encoding="utf-8", errors="replace"), scenario)


def loadgen_library() -> Any:
    """LoadGen's module.

    Raises:
        MissingExtra: It is not installed; the message names the extra.
        EngineError: It is, and cannot be loaded.
    """
    try:
        import mlperf_loadgen
    except ModuleNotFoundError as error:
        raise MissingExtra(
            "the kind loadgen needs the package 'mlcommons-loadgen': pip install 'inferometer[mlperf]'"
        ) from error
    except ImportError as error:
        raise EngineError(f"loadgen: the package 'mlcommons-loadgen' cannot be loaded: {error}") from error
    return mlperf_loadgen


class _System:
    """What LoadGen tests: it runs calls on a session, and tells LoadGen when they are done.

    An exception cannot pass through LoadGen, which waits for an answer to all that it has asked. So the rest
    is answered without being run, and the exception is raised when LoadGen has ended.
    """

    def __init__(self, library: Any, session: Session, batch: int, slots: int) -> None:
        self._library, self._session, self._batch, self._slots = library, session, batch, slots
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inferometer-loadgen")
        self._running: list[Future[None]] = []
        self._held = _Held()

    def __enter__(self) -> None:
        """The collector rests as in Inferometer's own loop."""
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._collecting:
            gc.enable()
        self._thread.shutdown()
        for future in self._running:
            future.result()
        if self._held.error is not None:
            raise self._held.error

    def all_at_once(self, ids: Sequence[int], samples: Sequence[int]) -> None:
        """Start on all samples, and return at once."""
        self._running.append(self._thread.submit(self._run, ids))

    def one(self, ids: Sequence[int], samples: Sequence[int]) -> None:
        """Run one call."""
        if self._held.error is None:
            with self._held:
                self._session.submit(0)
                self._session.wait(0)
        self._done(ids)

    def _run(self, ids: Sequence[int]) -> None:
        """Keep all slots busy, one batch each, as Inferometer's own loop does."""
        if len(ids) % self._batch == 0 and not self._session.ordered and self._slots > 1:
            self._by_threads(ids)
        else:
            self._in_turn(ids)

    def _by_threads(self, ids: Sequence[int]) -> None:
        """LoadGen is answered from this thread alone: it logs for each, and slots' threads end first."""
        parts = [ids[start : start + self._batch] for start in range(0, len(ids), self._batch)]
        to_do, answered = iter(parts), SimpleQueue[Sequence[int]]()

        def drive(slot: int) -> None:
            try:
                for part in to_do:
                    try:
                        self._session.submit(slot)
                        self._session.wait(slot)
                    finally:
                        answered.put(part)
            finally:
                for part in to_do:  # of which something is left only if a call failed
                    answered.put(part)

        with ThreadPoolExecutor(self._slots, "inferometer-slot") as pool:
            driving = [pool.submit(drive, slot) for slot in range(self._slots)]
            for _ in parts:
                self._done(answered.get())
        for future in driving:
            future.result()

    def _in_turn(self, ids: Sequence[int]) -> None:
        submit, wait, batch, slots = self._session.submit, self._session.wait, self._batch, self._slots
        calls, done = len(ids) // batch, 0
        try:
            if len(ids) % batch:
                raise EngineError(f"LoadGen asked for {len(ids)} samples: no whole batches of {batch}")
            for call in range(calls + slots):
                if call >= slots and call - slots < calls:
                    wait(call % slots)
                    self._done(ids[done : done + batch])
                    done += batch
                if call < calls:
                    submit(call % slots)
        finally:
            self._done(ids[done:])

    def _done(self, ids: Sequence[int]) -> None:
        response = self._library.QuerySampleResponse  # without outputs: they are not looked at
        self._library.QuerySamplesComplete([response(one, 0, 0) for one in ids])


class _Held:
    """Keeps the exception that ends its block, for later."""

    error: Exception | None = None

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
        return self.error is not None


@contextmanager
def _constructed(library: Any, issue: Any, count: int) -> Iterator[tuple[int, int]]:
    """LoadGen's handles of the system that answers, and of its library of ``count`` samples in memory."""
    system = library.ConstructFastSUT(issue, lambda: None)
    samples = library.ConstructQSL(count, count, lambda indices: None, lambda indices: None)
    try:
        yield system, samples
    finally:
        library.DestroyQSL(samples)
        library.DestroyFastSUT(system)


def _settings(library: Any, batch: int, scenario: Scenario, seconds: float, rate: float) -> Any:
    """LoadGen's ``TestSettings``: performance alone, of whole batches."""
    settings = library.TestSettings()
    settings.mode = library.TestMode.PerformanceOnly
    settings.min_duration_ms = math.ceil(seconds * 1e3)
    if scenario == "offline":
        settings.scenario = library.TestScenario.Offline
        calls = min(math.ceil(_SLACK * rate * seconds), _MAX_SAMPLES // batch)
        samples = max(calls, 1) * batch
        # LoadGen issues the larger of this count and of 1.1 times what it expects, which is less here.
        settings.min_query_count = samples
        settings.offline_expected_qps = samples / (_SLACK * settings.min_duration_ms * 1e-3)
    else:
        settings.scenario = library.TestScenario.SingleStream
        settings.min_query_count = _MIN_QUERIES
        # Twice as many queries are made as the duration holds at this latency.
        expected_s = max(1 / rate, 2 * seconds / _MAX_QUERIES)
        settings.single_stream_expected_latency_ns = max(1, int(expected_s * 1e9))
    return settings


def _logging(library: Any, folder: Path) -> Any:
    """Files in ``folder`` alone: standard output belongs to the worker's progress."""
    logging = library.LogSettings()
    logging.enable_trace = False
    logging.log_output.outdir = str(folder)
    logging.log_output.copy_summary_to_stdout = False
    logging.log_output.copy_detail_to_stdout = False
    return logging


def _warm_rate(session: Session, scenario: Scenario, max_s: float) -> float:
    """Warm up as speed trials do; calls/s of the last look at it, which LoadGen plans by."""
    slots = session.in_flight if scenario == "offline" else 1
    last = warm_up(session, slots, max_s).segments[-1]
    return last.calls / max(float(last.completed[-1] - last.submitted[0]) * 1e-9, 1e-9)


def _kept(spec: TrialSpec, file: Path) -> Sidecar:
    return write_sidecar(Path(spec.folder), f"{spec.id}.{file.name}", file.read_bytes())
