"""What is compiled: a kernel with types, constants and options, for some targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

VARIANTS: list[Variant] = []
ALL = ("sm_80", "sm_90a", "sm_100a")


@dataclass
class Variant:
    """One compilation.

    Attributes
    ----------
    types
        Types of the arguments that are no constants, separated by spaces; ``i32:16`` promises a multiple of 16.
    descriptors
        Of Gluon's descriptor arguments, by name: type, box, and how the CTAs of a cluster divide it.
    """

    name: str
    kernel: Any
    types: str
    constants: dict[str, Any]
    targets: tuple[str, ...]
    options: dict[str, Any]
    descriptors: dict[str, tuple[Any, ...]] = field(default_factory=dict)


def variant(
    name: str,
    types: str,
    targets: tuple[str, ...] = ALL,
    *,
    constants: dict[str, Any] | None = None,
    descriptors: dict[str, tuple[Any, ...]] | None = None,
    **options: Any,
) -> Callable[[Any], Any]:
    """Register a compilation of the decorated kernel."""

    def register(kernel: Any) -> Any:
        VARIANTS.append(Variant(name, kernel, types, constants or {}, targets, options, descriptors or {}))
        return kernel

    return register
