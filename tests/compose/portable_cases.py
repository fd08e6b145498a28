"""What every portable kernel is put through: small integers, coded places, ragged ends, rows that begin anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

import tilekit.compose as tk
from tests.compose.composed import BF16, Array, coded, integers, padded, picking, run

TARGETS = ("sm_80", "sm_90a", "sm_100a", "gfx942", "gfx950")
"""The chips that the one composition is traced for."""

ANYWHERE = (tk.RegisterLoader, tk.BufferLoader, tk.CpAsyncLoader)
"""Loaders of rows that begin at any element."""


def every_choice() -> Iterator[tuple[str, tk.PortableChoice]]:
    """Each target with each loader, strategy and instruction that it has."""
    for target in TARGETS:
        for choice in tk.portable_choices(target):
            yield target, choice


@cache
def composed(target: str, choice: tk.PortableChoice, on: str = "emulator", **more: Any) -> tk.ComposedKernel:
    """The kernel; traced once a choice. A Hopper GPU takes the text for sm_80, assembled for itself."""
    kernel = tk.portable_matmul(target, load=choice.load, sync=choice.sync, op=choice.op, **more)
    if on == "emulator" or target == "sm_90a":
        return kernel
    hopper = tk.portable_matmul("sm_90a", load=choice.load, sync=choice.sync, op=choice.op, **more)
    assert hopper.threads == kernel.threads
    hopper.__dict__["traced"] = kernel.traced
    return hopper


def product(a: Array, b: Array) -> Array:
    """A B^T in f32, exact for small integers."""
    exact: Array = a.astype(np.float32) @ b.astype(np.float32).swapaxes(-1, -2)
    return exact


def exact(target: str, choice: tk.PortableChoice, seed: int, on: str = "emulator") -> None:
    """Small integers, bit for bit, in shapes that follow from the seed: whole tiles, ragged ones, a single element."""
    rng = np.random.default_rng(seed)
    shapes = ((77, 100, 136), (128, 64, 64), (1, 1, 8), (129, 70, 328), (200, 40, 8), (64, 130, 192))
    m, n, k = shapes[seed % len(shapes)]
    a, b, d = integers(rng, 3, m, k), integers(rng, 3, n, k), np.zeros((m, n), BF16)
    run(composed(target, choice, on), {"a": padded(a), "b": padded(b)}, {"d": d}, on=on, seed=seed)
    np.testing.assert_array_equal(d, product(a, b).astype(BF16))


def places(target: str, choice: tk.PortableChoice, seed: int, on: str = "emulator") -> None:
    """Each row picks one column of the other operand: every element of the output says where it comes from."""
    rng = np.random.default_rng(seed)
    values = np.arange(1, 252, dtype=np.float32).astype(BF16)
    m, n, k = 70, 90, 72
    for a, b in (
        (picking(rng, m, k), coded(rng, n, k, values=values)),
        (coded(rng, m, k, values=values), picking(rng, n, k)),
    ):
        d = np.zeros((m, n), BF16)
        run(composed(target, choice, on), {"a": padded(a), "b": padded(b)}, {"d": d}, on=on, seed=seed)
        np.testing.assert_array_equal(d, product(a, b).astype(BF16))


def anywhere(target: str, choice: tk.PortableChoice, seed: int, on: str = "emulator") -> None:
    """Rows that begin at odd elements and end inside a word, where the loader takes them."""
    if choice.load not in ANYWHERE:
        return
    rng = np.random.default_rng(seed)
    m, n, k = 40 + seed, 33, 67 + seed
    wide = [integers(rng, 3, rows, k + 7) for rows in (m, n)]
    a, b = (array[:, 3 : 3 + k] for array in wide)
    d = np.zeros((m, n), BF16)
    more = {"width": 2} if choice.load is tk.CpAsyncLoader else {}
    run(composed(target, choice, on, **more), {"a": a, "b": b}, {"d": d}, on=on, seed=seed)
    np.testing.assert_array_equal(d, product(a, b).astype(BF16))


BODIES: tuple[Callable[..., None], ...] = (exact, places, anywhere)
