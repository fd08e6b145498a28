"""One BLAS thread while a launch runs.

The emulator's matrix products take tens of microseconds; handing them to a second thread costs milliseconds whenever
the machine has something else to do. NumPy's wheels bundle OpenBLAS, whose thread count can be set at run time.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

_NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")


@lru_cache(1)
def _library() -> tuple[ctypes.CDLL, str] | None:
    """OpenBLAS as bundled with NumPy, and the pattern of its function names; None where there is no such library."""
    package = Path(np.__file__).parent
    candidates = [*package.parent.glob("numpy.libs/*openblas*"), *package.glob(".dylibs/*openblas*")]
    for path in candidates:
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        for name in _NAMES:
            if hasattr(library, name.format("set")):
                return library, name
    return None


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Use one BLAS thread inside the block; does nothing for other BLAS libraries."""
    found = _library()
    if found is None:
        yield
        return
    library, name = found
    set_threads, get_threads = getattr(library, name.format("set")), getattr(library, name.format("get"))
    before = get_threads()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(before)
