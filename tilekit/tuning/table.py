"""What was measured, a JSON line a candidate, a file a device; and which config it says is best."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import tilekit
from tilekit.annotations import check_fields
from tilekit.errors import ArgumentError
from tilekit.kernels.dispatch import family_of
from tilekit.kernels.family import Choices
from tilekit.kernels.registry import families
from tilekit.settings import settings
from tilekit.targets import TARGETS, Target

TABLES = "tuned"
"""The tables' folder in the cache folder."""


@dataclass(frozen=True)
class Problem:
    """What a config was measured for.

    Attributes
    ----------
    family
        The kernel family whose configs they are.
    kernel
        What is computed, without what is fused.
    m, n, k, batches, groups
        Extents; of groups of rows, `m` is of all.
    """

    family: str
    kernel: str
    m: int
    n: int
    k: int
    batches: int
    groups: int = 0

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    def of(cls, spec: Any, *, m: int, n: int, k: int, batches: int, groups: int = 0) -> Problem:
        """Name a problem."""
        family = family_of(spec)
        return cls(family.name, choices_of(family.name).plain(spec), m, n, k, batches, groups)

    @property
    def shape(self) -> dict[str, Any]:
        """Its extents by name."""
        return {name: getattr(self, name) for name in ("m", "n", "k", "batches", "groups")}


def choices_of(family: str) -> Choices:
    """Return the configs that a family's kernels may have.

    Raises
    ------
    ArgumentError
        For a family that has none to choose from.
    """
    known = families()
    choices = known[family].choices if family in known else None
    if choices is None:
        legal = ", ".join(name for name, one in known.items() if one.choices is not None)
        raise ArgumentError.of("family", family, legal=legal)
    return choices


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

    config: Any
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
        self.path = (folder or settings.cache_dir / TABLES) / f"{name}.jsonl"
        self._seconds: dict[Problem, dict[Any, float]] = {}
        self.passed_over = 0
        """Lines of another device or version, or that cannot be read."""
        self._load()

    def __len__(self) -> int:
        return len(self._seconds)

    def best(self, problem: Problem, fits: Callable[[Any], bool] = lambda config: True) -> Any:
        """The quickest config measured for a problem that `fits`, if any; of two that are, the later one."""
        seconds = self._seconds.get(problem, {})
        later_first = list(reversed(seconds))
        quickest = sorted(later_first, key=seconds.__getitem__)
        return next((config for config in quickest if fits(config)), None)

    def add(self, problem: Problem, measurements: list[Measurement]) -> None:
        """Remember measurements, and append them to the file."""
        for measurement in measurements:
            self._note(problem, measurement)
        head = {"version": tilekit.__version__, "device": self._device, "target": self._target.name, **asdict(problem)}
        lines = [
            json.dumps(head | {"config": asdict(m.config), "seconds": m.seconds, "failure": m.failure})
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
                if not line:  # of a process that took another's half-written line for a broken one (`_append`)
                    continue
                try:
                    self._read(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # whatever a line holds
                    self.passed_over += 1
        if self.passed_over:
            warnings.warn(
                f"{self.path}: {self.passed_over} line(s) of another device, or of a tilekit that is not "
                f"{tilekit.__version__}, are not used; `tilekit tune` measures again",
                RuntimeWarning,
                stacklevel=2,
            )

    def _read(self, values: Any) -> None:
        """Take a line's values; those of another chip, whose kernels run on the device too, are of other tables."""
        if (values["version"], values["device"]) != (tilekit.__version__, self._device):
            raise ValueError("of another device or version")
        if values["target"] != self._target.name and values["target"] in TARGETS:
            return
        problem = Problem(**{field.name: values[field.name] for field in fields(Problem)})
        config = config_of(problem.family, values["config"], self._target)
        self._note(problem, Measurement(config, values["seconds"], values.get("failure", "")))

    def _note(self, problem: Problem, measurement: Measurement) -> None:
        if measurement.seconds is None:
            return
        known = self._seconds.setdefault(problem, {})
        known.pop(measurement.config, None)
        known[measurement.config] = measurement.seconds


def _append(path: Path, text: bytes) -> None:
    """Append lines in one write, so that two processes' do not mix, behind whatever a broken one has left."""
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            text = text if file.read(1) == b"\n" else b"\n" + text
        if file.write(text) != len(text):  # of a full disk; what is there of it is a broken line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def config_of(family: str, values: Mapping[str, Any], target: Target) -> Any:
    """Build a family's config from its fields as JSON has them."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return choices_of(family).config(fields, target)
