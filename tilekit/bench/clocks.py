"""The card's SM clock and power while contestants run: read, never set."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

__all__ = ["ClockSampler"]

_PERIOD_SECONDS = 0.01

Reading = tuple[float, float]
"""SM clock in MHz and power in watts."""


class ClockSampler:
    """Samples clock and power in the background: through NVML if pynvml is installed, else through ``nvidia-smi``.

    Use it as a context manager. Where neither is there, every mean is None.

    Parameters
    ----------
    uuid : str
        The GPU, as ``GPU-...``; the CUDA and NVML orders of devices differ.
    """

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._samples: list[tuple[float, Reading]] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._interrupt: Callable[[], None] = self._stop.set
        self._closers = contextlib.ExitStack()

    def __enter__(self) -> Self:
        source = self._nvml() or self._nvidia_smi()
        if source is not None:
            self._thread = threading.Thread(target=self._run, args=(source,), name="tilekit-clocks", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._interrupt()
        if self._thread is not None:
            self._thread.join()
        self._closers.close()

    def mean(self, windows: Sequence[tuple[float, float]]) -> tuple[float | None, float | None]:
        """Return mean clock (MHz) and power (W) of the samples in these windows of ``time.perf_counter``."""
        inside = [
            reading for when, reading in list(self._samples) if any(start <= when <= end for start, end in windows)
        ]
        if not inside:
            return None, None
        return sum(clock for clock, _ in inside) / len(inside), sum(watts for _, watts in inside) / len(inside)

    def _run(self, source: Callable[[], Iterator[Reading]]) -> None:
        for reading in source():
            self._samples.append((time.perf_counter(), reading))

    def _nvml(self) -> Callable[[], Iterator[Reading]] | None:
        try:
            nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            handle = nvml.nvmlDeviceGetHandleByUUID(self.uuid)
            self._nvml_reading(nvml, handle)
        except Exception:
            # No package, no library, a container without NVML, or a GPU that does not tell: nvidia-smi may answer.
            return None
        self._closers.callback(nvml.nvmlShutdown)

        def read() -> Iterator[Reading]:
            while not self._stop.wait(_PERIOD_SECONDS):
                yield self._nvml_reading(nvml, handle)

        return read

    @staticmethod
    def _nvml_reading(nvml: Any, handle: Any) -> Reading:
        # The plain power reading is an average over a second, in which every contestant has had its turn.
        (instant,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])
        milliwatts = instant.value.uiVal if instant.nvmlReturn == 0 else nvml.nvmlDeviceGetPowerUsage(handle)
        return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)), milliwatts / 1000

    def _nvidia_smi(self) -> Callable[[], Iterator[Reading]] | None:
        program = shutil.which("nvidia-smi")
        if program is None:
            return None
        query = [
            "--query-gpu=clocks.sm,power.draw.instant",
            "--format=csv,noheader,nounits",
            "-lms",
            "20",
            "-i",
            self.uuid,
        ]
        process = subprocess.Popen([program, *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._closers.enter_context(process)
        self._interrupt = process.terminate

        def read() -> Iterator[Reading]:
            assert process.stdout is not None
            for line in process.stdout:
                with contextlib.suppress(ValueError):
                    clock, watts = (float(part) for part in line.split(","))
                    yield clock, watts

        return read
