"""Every kernel family there is: what the command line lists, the documents tabulate and the tests run."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.targets import TARGETS


@dataclass(frozen=True)
class Family:
    """One kernel family: its name, what it computes, and the targets it is built for."""

    name: str
    summary: str
    targets: tuple[str, ...]


def families() -> dict[str, Family]:
    """All families by name."""
    summary = "D = activation(scale * (A @ B) + bias + beta * residual), batched or in groups of rows, f32 accumulation"
    matmul = Family("matmul", summary, tuple(TARGETS))
    return {matmul.name: matmul}
