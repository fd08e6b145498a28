"""Copies and pickles of kernels: the kernel that the process has for the same description."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import tilekit
import tilekit.compose as tk
from tilekit.tiles.call import Schedule


class One:
    """One CTA, whatever the call."""

    def schedule(self, call: tk.Call) -> Schedule:
        """One."""
        return Schedule(clusters=1, tiles=1)


def nothing(w: tk.Writer) -> One:
    """Writes nothing."""
    return One()


composing = tk.kernel(tk.Input("x", tk.F32, "n"), tk.Output("y", tk.F32, "n"), target="sm_90a", threads=32)


@composing
def placed(w: tk.Writer) -> One:
    """Found by its name in this module."""
    return One()


def product() -> Any:
    """A matmul's kernel."""
    return tilekit.kernel_for(np.ones((64, 64), np.float16), np.ones((64, 64), np.float16), target="sm_90a")


def rows() -> Any:
    """A gemv's."""
    return tilekit.kernel_for(np.ones((1, 64), np.float16), np.ones((64, 64), np.float16), target="sm_90a")


def heads() -> Any:
    """That of attention."""
    q = np.ones((1, 64, 2, 64), np.float16)
    return tilekit.attention_kernel_for(q, q, q, target="sm_90a")


@pytest.mark.parametrize("make", [product, rows, heads, lambda: placed])
def test_a_copy_is_the_same_kernel(make: Any) -> None:
    """Spec, config and target say what it is; in the same process there is one of them."""
    kernel = make()
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert copy.copy(kernel) is copy.deepcopy(kernel) is kernel


def same(w: tk.Writer, made: Any) -> Any:
    """Attention as it is."""
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: composing(nothing),
        lambda: tk.attention_kernel(tilekit.AttentionSpec(tk.F16, 64, 64), target="sm_90a")(same),
    ],
)
def test_a_kernel_that_no_name_finds(make: Any) -> None:
    """As of a function that another has taken the name of, Python says where it looked; a copy needs no name."""
    kernel = make()
    with pytest.raises(pickle.PicklingError, match=r"test_pickled_kernels\.(nothing|same)"):
        pickle.dumps(kernel)
    assert copy.deepcopy(kernel) is kernel
