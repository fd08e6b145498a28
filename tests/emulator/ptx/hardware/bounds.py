"""How far the emulator's approximate instructions may lie from the H200's: the only table of it.

The emulator computes them exactly and rounds once; the hardware interpolates. What is not in this table is compared bit
for bit. ``python -m tests.emulator.ptx.hardware.bounds`` writes the table into docs/hardware-facts.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = Path(__file__).resolve().parents[4] / "docs" / "hardware-facts.md"
_MARKS = ("<!-- approximations -->\n", "<!-- /approximations -->")


@dataclass(frozen=True)
class Bound:
    """A difference is allowed up to the relative or up to the absolute bound, whichever is larger.

    Attributes
    ----------
    kind
        Type of the values: f32, f16 or bf16.
    relative, absolute
        Bounds; the absolute one is for results around zero and below the normal numbers.
    documented
        What the PTX ISA promises of the hardware against the exact result.
    """

    kind: str
    relative: float
    absolute: float
    documented: str

    @property
    def tolerance(self) -> tuple[str, float, float]:
        """As a case has it."""
        return self.kind, self.relative, self.absolute


def _both(instruction: str, relative: float, absolute: float, documented: str) -> dict[str, Bound]:
    """An f32 instruction with and without ``.ftz``."""
    return {f"{instruction}{flush}.f32": Bound("f32", relative, absolute, documented) for flush in ("", ".ftz")}


_ULP = 2.0**-23
_TINY = 2.0**-149

BOUNDS: dict[str, Bound] = {
    **_both("ex2.approx", _ULP, _TINY, "2 ulp"),
    **_both("lg2.approx", _ULP, 2.0**-21.8, "2^-22 in (0.5, 2), else relative 2^-22"),
    **_both("rcp.approx", _ULP, 2.0**-126, "1 ulp"),
    **_both("sqrt.approx", _ULP, _TINY, "relative 2^-23"),
    **_both("rsqrt.approx", _ULP, 0.0, "relative 2^-22.9"),
    **_both("div.approx", _ULP, 0.0, "2 ulp"),
    **_both("div.full", _ULP, 0.0, "2 ulp"),
    **_both("sin.approx", 0.0, 2.0**-21.5, "2^-20.5 in [-pi, pi]"),
    **_both("cos.approx", 0.0, 2.0**-21.5, "2^-20.5 in [-pi, pi]"),
    "tanh.approx.f32": Bound("f32", 2.0**-16.5, 0.0, "relative 2^-11"),
}
for (_kind, _digits), _count in product((("f16", 10), ("bf16", 7)), ("", "x2")):
    BOUNDS[f"tanh.approx.{_kind}{_count}"] = Bound(
        _kind, 2.0**-_digits, 0.0, "absolute 2^-10.987" if _kind == "f16" else "absolute 2^-8"
    )
    _name = f"ex2.approx.{'ftz.' if _kind == 'bf16' else ''}{_kind}{_count}"
    _promise = "relative 2^-9.9" if _kind == "f16" else "relative 2^-7"
    BOUNDS[_name] = Bound(_kind, 2.0**-_digits, 0.0, _promise)

_STORAGE = {"f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}


def values(raw: npt.NDArray[np.uint8], kind: str) -> npt.NDArray[Any]:
    """Bytes as values in float64."""
    if kind == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.view({"f32": np.float32, "f16": np.float16}[kind]).astype(np.float64)


def complaint(tolerance: tuple[str, float, float], got: npt.NDArray[np.uint8], recorded: npt.NDArray[np.uint8]) -> str:
    """What lies beyond a bound, in words; empty when nothing does. NaNs and infinities must agree exactly."""
    kind, relative, absolute = tolerance
    mine, theirs = values(got, kind), values(recorded, kind)
    finite = np.isfinite(theirs) & np.isfinite(mine)
    special = np.flatnonzero(~(finite | (np.isnan(mine) & np.isnan(theirs)) | (mine == theirs)))
    if special.size:
        at = int(special[0])
        return f"{special.size} results differ in kind, the first at {at}: emulator {mine[at]}, H200 {theirs[at]}"
    error = np.abs(np.where(finite, mine, 0) - np.where(finite, theirs, 0))
    allowed = np.maximum(absolute, relative * np.abs(np.where(finite, theirs, 0)))
    if (error <= allowed).all():
        return ""
    at = int(np.argmax(error - allowed))
    return (
        f"{np.count_nonzero(error > allowed)} results beyond the bound, the worst at {at}: emulator {mine[at]!r}, "
        f"H200 {theirs[at]!r}, apart {error[at]:.3g}, allowed {allowed[at]:.3g}"
    )


def same_bits(kind: str, got: npt.NDArray[np.uint8], recorded: npt.NDArray[np.uint8]) -> float:
    """The share of equal results."""
    return float((got.view(_STORAGE[kind]) == recorded.view(_STORAGE[kind])).mean())


def table() -> str:
    """Every approximate instruction: its bounds, and how many results are equal all the same."""
    from tests.emulator.ptx.hardware.running import Runner, recorded_cases

    cases = {case.name: case for case in recorded_cases()["float"] if case.tolerance is not None}
    rows = ["| instruction | allowed: relative, or absolute | PTX ISA: from the exact result | equal bits |"]
    rows.append("|---|---|---|---|")
    runner = Runner()
    for name, bound in BOUNDS.items():
        case = next(case for case in cases.values() if case.name.startswith(f"float: {name} "))
        got, recorded = runner.run(case), runner.recorded(case)
        allowed = ", ".join(f"2^{np.log2(b):.4g}" if b else "0" for b in (bound.relative, bound.absolute))
        rows.append(f"| `{name}` | {allowed} | {bound.documented} | {same_bits(bound.kind, got, recorded):.0%} |")
    return "\n".join(rows)


def with_table(page: str) -> str:
    """The page with its table of approximations replaced."""
    before, rest = page.split(_MARKS[0])
    return before + _MARKS[0] + table() + "\n" + _MARKS[1] + rest.split(_MARKS[1])[1]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
