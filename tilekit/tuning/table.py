"""What was measured, a JSON line a candidate, a file a device; and which config it says is best."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tilekit
from tilekit.annotations import check_fields
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.platforms import platform
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.settings import settings
from tilekit.targets import Target


@dataclass(frozen=True)
class Problem:
    """What a config was measured for.

    Attributes
    ----------
    kernel
        Name and store of the spec without its functions.
    m, n, k, batches
        Extents.
    """

    kernel: str
    m: int
    n: int
    k: int
    batches: int

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, spec: MatmulSpec, *, m: int, n: int, k: int, batches: int) -> Problem:
        """Name a problem; fused functions do not count, since they cost no tile its place."""
        plain = replace(spec, functions=ElementwiseSpec(), components=OwnComponents())
        return cls(f"{plain.name}.{plain.store}", m, n, k, batches)


@dataclass(frozen=True)
class Measurement:
    """One candidate's time, or why it has none.

    Attributes
    ----------
    config
        The candidate.
    seconds
        A launch, under load; None where it failed.
    failure
        What went wrong: an error's text, a crash, or that it took too long.
    """

    config: KernelConfig
    seconds: float | None
    failure: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise ArgumentError.of("seconds", self.seconds, legal="a time above 0, or None")


class TunedTable:
    """The measurements of one device.

    Parameters
    ----------
    device
        Its name, as the driver gives it.
    target
        Its chip.
    folder
        Where tables are; by default ``tuned`` in the cache folder of the settings.

    Notes
    -----
    Lines of another version of tilekit are passed over, as its kernels may be others; so are lines that cannot be
    read. A warning says how many. Where the folder cannot be written, measurements last as long as the process, and
    another says so.
    """

    def __init__(self, device: str, target: Target, folder: Path | None = None) -> None:
        self._target = target
        self._device = device
        name = re.sub(r"[^A-Za-z0-9]+", "-", device).strip("-").lower()
        self.path = (folder or settings.cache_dir / "tuned") / f"{name}.jsonl"
        self._best: dict[Problem, tuple[float, KernelConfig]] = {}
        self.passed_over = 0
        """Lines of another device or version, or that cannot be read."""
        self._load()

    def __len__(self) -> int:
        return len(self._best)

    def best(self, problem: Problem) -> KernelConfig | None:
        """The quickest config measured for a problem, if any."""
        found = self._best.get(problem)
        return found[1] if found is not None else None

    def add(self, problem: Problem, measurements: list[Measurement]) -> None:
        """Remember measurements, and append them to the file."""
        for measurement in measurements:
            self._note(problem, measurement)
        head = {"version": tilekit.__version__, "device": self._device, **asdict(problem)}
        lines = [
            json.dumps(head | {"config": asdict(m.config), "seconds": m.seconds, "failure": m.failure})  # type: ignore[call-overload]
            for m in measurements
        ]
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _append(self.path, "".join(line + "\n" for line in lines).encode())
        except OSError as error:
            warnings.warn(
                f"{self.path} cannot be written ({error.strerror}): what was measured lasts as long as this process",
                RuntimeWarning,
                stacklevel=2,
            )

    def _load(self) -> None:
        with contextlib.suppress(OSError):
            for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                entry = self._entry(line)
                if entry is None:
                    self.passed_over += 1
                else:
                    self._note(*entry)
        if self.passed_over:
            warnings.warn(
                f"{self.path}: {self.passed_over} line(s) of another device, or of a tilekit that is not "
                f"{tilekit.__version__}, are not used; `tilekit tune` measures again",
                RuntimeWarning,
                stacklevel=2,
            )

    def _entry(self, line: str) -> tuple[Problem, Measurement] | None:
        try:
            values = json.loads(line)
            if (values["version"], values["device"]) != (tilekit.__version__, self._device):
                return None
            problem = Problem(*(values[name] for name in ("kernel", "m", "n", "k", "batches")))
            return problem, Measurement(
                config_of(values["config"], self._target), values["seconds"], values.get("failure", "")
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # whatever a damaged line holds
            return None

    def _note(self, problem: Problem, measurement: Measurement) -> None:
        if measurement.seconds is None:
            return
        known = self._best.get(problem)
        if known is None or measurement.seconds <= known[0] or known[1] == measurement.config:
            self._best[problem] = measurement.seconds, measurement.config


def _append(path: Path, text: bytes) -> None:
    """Append lines in one write, so that two processes' do not mix, behind whatever a broken one has left."""
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            text = text if file.read(1) == b"\n" else b"\n" + text
        file.write(text)


def config_of(values: dict[str, Any], target: Target) -> KernelConfig:
    """Build a config from its fields as JSON has them."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return platform(target).config(**fields)
