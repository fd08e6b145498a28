"""`tilekit.tune`: measure the configs that the model likes best, a process apart, and remember the times."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from statistics import median
from typing import Any

from tilekit.annotations import checked
from tilekit.bench.conv2d import ConvWorkload
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import BF16, as_dtype
from tilekit.errors import ArgumentError, DriverError
from tilekit.kernels.gemv.picker import MOST_TOKENS
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import ranked, variants
from tilekit.kernels.matmul.spec import Accumulation, Precision
from tilekit.kernels.resolve import target_of
from tilekit.runtime import driver
from tilekit.targets import Target
from tilekit.tiles.call import Major
from tilekit.tuning.lookup import table_of
from tilekit.tuning.table import Measurement, Problem

PATIENCE = 20.0
"""Seconds that a candidate may take before it counts as hanging, from its predecessor's answer to its own."""

Tunable = MatmulWorkload | ConvWorkload
"""What has configs of the matmul's."""

Started = Callable[[list[str]], "subprocess.Popen[str]"]


@dataclass(frozen=True)
class TuneResult:
    """What tuning found.

    Attributes
    ----------
    problem
        What was measured.
    measurements
        Every candidate, quickest first; those that failed last.
    picked
        The model's choice, which is among them.
    tuning_candidates
        Those that the picker does not choose from.
    path
        Where the table is.
    """

    problem: Problem
    measurements: tuple[Measurement, ...]
    picked: KernelConfig
    tuning_candidates: tuple[KernelConfig, ...]
    path: str

    @property
    def best(self) -> Measurement:
        """The quickest."""
        return self.measurements[0]

    @property
    def gain(self) -> float:
        """How many times quicker than the model's choice the quickest is; 1 where that failed."""
        picked = next(m for m in self.measurements if m.config == self.picked)
        if picked.seconds is None or self.best.seconds is None:
            return 1.0
        return picked.seconds / self.best.seconds

    @property
    def tuning_gain(self) -> float | None:
        """How many times quicker the best of what tuning adds is than the best of the rest; None without either."""
        seconds = [(m.config in self.tuning_candidates, m.seconds) for m in self.measurements if m.seconds is not None]
        known, fresh = ([s for added, s in seconds if added is which] for which in (False, True))
        return min(known) / min(fresh) if known and fresh else None

    def __str__(self) -> str:
        lines = []
        for m in self.measurements:
            time = f"{m.seconds * 1e6:10.2f} us" if m.seconds is not None else f"{m.failure[:60]:>13}"
            note = "  (the model picks it)" if m.config == self.picked else ""
            note = note or "  (only tuning tries it)" * (m.config in self.tuning_candidates)
            lines.append(f"{time}  {m.config}{note}")
        return "\n".join([*lines, f"quickest {self.gain:.3f} times as fast as the model's choice; kept in {self.path}"])


@checked
def tune(
    m: int,
    n: int,
    k: int,
    *,
    batch: int | None = None,
    dtype: Any = BF16,
    out_dtype: Any = None,
    a_major: Major = "k",
    b_major: Major = "k",
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
    candidates: int = 12,
    progress: Callable[[Measurement], None] | None = None,
) -> TuneResult:
    """Measure the best candidates for a matmul on this machine's GPU, and use the quickest from now on.

    Parameters
    ----------
    m, n, k, batch
        The shape. Arrays are without padding, as a library makes them.
    dtype, out_dtype
        Of the operands and of the result (by default that of the operands, bf16 for 8-bit ones).
    a_major, b_major
        ``"k"`` or ``"mn"``: the contiguous dimension.
    precision
        ``"tf32"`` for f32 operands.
    accumulation
        ``"promoted"`` for 8-bit operands whose sums of 128 products are added in f32.
    candidates
        How many of the model's ranking are measured, and half as many of those that the picker does not choose
        from. Variants of the quickest of them follow: prefetch, raster, groups in flight, L2.
    progress
        Called with each candidate's first time.

    Returns
    -------
    TuneResult
        `tilekit.matmul` takes its best config for this shape, in this and in later processes, until tilekit's version
        changes.

    Raises
    ------
    DriverError
        Without a GPU that tilekit builds kernels for.
    ArgumentError
        For a shape or type that no kernel takes.
    """
    operand = as_dtype(dtype)
    result = as_dtype(out_dtype, "out_dtype") if out_dtype is not None else operand if operand.bits > 8 else BF16
    types = (operand, operand, result)
    how: dict[str, Any] = {"precision": precision, "accumulation": accumulation, "padded": False}
    workload = MatmulWorkload(m, n, k, batch, *types, a_major, b_major, **how)
    return tune_workload(workload, candidates=candidates, progress=progress)


def tune_workload(
    workload: Tunable, *, candidates: int, progress: Callable[[Measurement], None] | None = None
) -> TuneResult:
    """Measure the best candidates for a workload; see :func:`tune`."""
    if candidates < 1:
        raise ArgumentError.of("candidates", candidates, legal="a whole number from 1 on", nearest=1)
    product = type(workload) is MatmulWorkload
    if product and workload.m <= MOST_TOKENS and workload.batch is None and workload.precision is None:
        legal = f"{MOST_TOKENS + 1} or more rows: fewer are a gemv's, whose configs are not tuned"
        raise ArgumentError.of("m", workload.m, legal=legal, nearest=MOST_TOKENS + 1)
    spec = workload.spec
    reason = driver.why_unavailable()
    if reason is not None:
        raise DriverError(f"tuning needs a GPU: {reason}", code="TK-TUNE-001")
    device = driver.devices()[0]
    chip = target_of(device, None)
    if isinstance(workload, ConvWorkload):  # how operands are loaded is the chip's
        workload = replace(workload, target=chip.name)
        spec = workload.spec
    shape: dict[str, Any] = {"m": workload.m, "n": workload.n, "k": workload.k, "batches": workload.batch or 1}
    extents: dict[str, Any] = {**shape, "sms": device.sms, "read": workload.read}
    known = [e.config for e in ranked(spec, chip, **extents)[:candidates]]
    fresh = [e.config for e in ranked(spec, chip, **extents, tuning=True)[: -(-candidates // 2)]]
    measured = measure(workload, chip, [*known, *fresh], progress=progress)
    best = _quickest_first(measured)[0]
    if best.seconds is not None:
        # In a process of their own, so beside the best one again, and beside the model's choice.
        more = variants(best.config, spec, chip)
        again = measure(workload, chip, list(dict.fromkeys([best.config, known[0], *more])), progress=progress)
        measured = list(({m.config: m for m in measured} | {m.config: m for m in again}).values())
        fresh += more
    problem = Problem.of(spec, **shape)
    table = table_of(device.name, chip)
    table.add(problem, measured)
    return TuneResult(problem, tuple(_quickest_first(measured)), known[0], tuple(fresh), str(table.path))


def _quickest_first(measured: Iterable[Measurement]) -> list[Measurement]:
    return sorted(measured, key=lambda m: (m.seconds is None, m.seconds or 0.0))


def measure(
    workload: Tunable,
    chip: Target,
    configs: Sequence[KernelConfig],
    *,
    patience: float = PATIENCE,
    progress: Callable[[Measurement], None] | None = None,
    start: Started | None = None,
) -> list[Measurement]:
    """Measure configs in a process of their own; one that hangs or crashes ends that process, and another goes on.

    A config's time is the median of all that its process reports.

    Parameters
    ----------
    workload, chip, configs
        What is measured.
    patience
        Seconds until a candidate counts as hanging; the first of a process may take three times as long.
    progress
        Called with each config's first time.
    start
        Starts the process; for tests.

    Returns
    -------
    list of Measurement
        One for each config, in their order.
    """
    found: list[Measurement] = []
    while len(found) < len(configs):
        answers = _Answers(workload, chip, configs[len(found) :], start or _start)
        first: list[Measurement] = []
        try:
            for config in configs[len(found) :]:
                first.append(answers.next(config, patience * (3 if not first else 1)))
                if progress is not None:
                    progress(first[-1])
                if not answers.alive:
                    break
            found += answers.again(first, patience)
        finally:  # an interrupt too ends the process
            answers.close()
    return found


def request(workload: Tunable, chip: Target, configs: Sequence[KernelConfig]) -> dict[str, Any]:
    """What a worker is asked for, as JSON has it."""
    values = {field.name: getattr(workload, field.name) for field in fields(workload)}
    values |= {name: values[name].name for name in ("a_dtype", "b_dtype", "out_dtype")}
    return {
        "family": workload.family,
        "workload": values,
        "target": chip.name,
        "configs": [asdict(c) for c in configs],  # type: ignore[call-overload]
    }


class _Answers:
    """A worker process and the lines it writes."""

    def __init__(self, workload: Tunable, chip: Target, configs: Sequence[KernelConfig], start: Started) -> None:
        self.alive = True
        self._process = start([sys.executable, "-m", "tilekit.tuning.worker"])
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request(workload, chip, configs)))
        self._process.stdin.close()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next(self, config: KernelConfig, patience: float) -> Measurement:
        """Wait for the answer about `config`."""
        try:
            line = self._lines.get(timeout=patience)
        except queue.Empty:
            self.alive = False
            return Measurement(config, None, f"took more than {patience:.0f} s and was stopped")
        if line is None:
            self.alive = False
            return Measurement(config, None, f"its process ended with code {self._process.wait()}")
        answer = json.loads(line)
        return Measurement(config, answer.get("seconds"), answer.get("failure", ""))

    def again(self, first: list[Measurement], patience: float) -> list[Measurement]:
        """Wait for whatever else it says of the same configs, and take the median of each one's times."""
        times = [[m.seconds] if m.seconds is not None else [] for m in first]
        while self.alive:
            try:
                line = self._lines.get(timeout=patience)
            except queue.Empty:
                break
            if line is None:
                break
            answer = json.loads(line)
            times[answer["index"]].append(answer["seconds"])
        return [replace(m, seconds=median(t)) if t else m for m, t in zip(first, times, strict=True)]

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put(None)


def _start(command: list[str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)
