"""The sparse A of ``wgmma.mma_async.sp``: zeros put back where its metadata says they were.

Each warp holds the metadata of its 16 rows as ``mma.sp`` has it; see PTX ISA, "Asynchronous warpgroup level
multiply-and-accumulate operation using wgmma.mma_async.sp instruction".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilekit.emulator.ptx.matrix.mma import Mma, chunk_indices, expand
from tilekit.emulator.ptx.matrix.wgmma import Wgmma

__all__ = ["with_zeros"]


def with_zeros(
    op: Wgmma, a: npt.NDArray[np.float32], metadata: npt.NDArray[np.uint32], selector: int
) -> npt.NDArray[np.float32]:
    """Return a sparse A with its zeros.

    Parameters
    ----------
    op
        Instruction form.
    a : float32[64, stored_k * steps]
        In register order, from `load_a` or `registers_a`.
    metadata : uint32[steps, 4, 32]
        The metadata of each k-step: a register of each warp.
    selector
        Which lanes of each four hold it.

    Returns
    -------
    a : float32[64, k * steps]

    Raises
    ------
    ValueError
        If the metadata names an element twice, or lanes that do not exist.
    """
    like = Mma(16, op.k, op.a_type, op.b_type, op.d_type, sparse=True)
    parts = []
    for step, words in enumerate(metadata):
        chunks = np.stack([chunk_indices(like, word, selector) for word in words])  # w, (h, g)
        ordered = chunks.reshape(4, 2, 8, -1).transpose(1, 0, 2, 3).reshape(64, -1)
        parts.append(expand(a[:, step * op.stored_k : (step + 1) * op.stored_k], ordered, op.a_type))
    return np.concatenate(parts, axis=1)
