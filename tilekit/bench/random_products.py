"""Products drawn at random.

The distribution, for the case of a number under a seed:

- One in sixteen is a grouped product of 4 to 16 groups with skewed sizes, one in sixteen a batch of 2 to 32 products,
  and the others are single ones.
- N and K are, three times of five, of the weights of a public model (`WEIGHTS`), and else free multiples of 8 from 256
  to 16384, log-uniform, each by itself.
- M is log-uniform from 1 to 8192; in a batch to 1024. Where A's columns are contiguous it is a multiple of 8: with any
  other the library falls back to kernels that take up to eight times as long.
- Operands are bf16 (five of ten), f16 (three) or e4m3 with a scale a tensor (two); batches and groups are bf16.
- Both operands have K contiguous in half of the cases, B alone its rows (N) in a fifth, A alone its columns (M) in
  three of twenty, both in as many; of 8-bit operands K is always contiguous, as cuBLAS and Hopper's tensor cores ask,
  and N and K are multiples of 16.
- One in eight of the single ones of 16-bit operands has a gelu behind it, with a bias, for which cuBLASLt has a call.

Extents are cut so that operands and result stay under 1.5 GB.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Final

from tilekit.bench.classes import MOST_ROWS
from tilekit.bench.drawn import DrawnSuite
from tilekit.bench.grouped import GroupedWorkload
from tilekit.bench.workload import MatmulWorkload, Workload
from tilekit.dtypes import BF16, E4M3, F16

if TYPE_CHECKING:
    from tilekit.tiles.call import Major

__all__ = ["SUITE", "WEIGHTS"]

WEIGHTS: Final = (
    *((4096, 4096), (6144, 4096), (28672, 4096), (14336, 4096), (4096, 14336)),  # Llama 3, 8 billion parameters
    *((8192, 8192), (10240, 8192), (57344, 8192), (28672, 8192), (8192, 28672)),  # 70 billion
    *((12288, 4096), (22016, 4096), (11008, 4096), (4096, 11008)),  # Llama 2, 7 billion
    *((5120, 5120), (15360, 5120), (13824, 5120), (5120, 13824)),  # 13 billion
    *((3072, 3072), (9216, 3072), (8192, 3072), (3072, 8192)),  # Llama 3.2, 3 billion; Phi-3 mini
    *((3584, 3584), (4608, 3584), (18944, 3584), (3584, 18944)),  # Qwen 2.5, 7 billion
    *((1536, 1536), (2048, 1536), (8960, 1536), (1536, 8960)),  # 1.5 billion
    *((2304, 2048), (16384, 2048), (2048, 16384)),  # Gemma, 2 billion
    *((2112, 7168), (24576, 1536), (7168, 16384), (4096, 7168), (7168, 2048), (1536, 7168)),  # DeepSeek-V3
    *((768, 768), (2304, 768), (3072, 768), (768, 3072)),  # GPT-2, BERT
    *((1280, 1280), (5120, 1280), (1280, 5120)),  # Whisper large, ViT-H
)
"""N and K of weights of public language models, with what their authors fuse fused or not."""

_MOST_BYTES: Final = 1.5e9


def _drawn(random: Random) -> Workload | None:
    case = _any(random)
    return case if case.bytes <= _MOST_BYTES else None


def _any(random: Random) -> Workload:
    n, k = random.choice(WEIGHTS) if random.random() < 0.6 else (_multiple(random), _multiple(random))
    shape = random.randrange(16)
    if shape == 0:
        return GroupedWorkload(_sizes(random), n, k, routing="skewed")
    if shape == 1:
        a_major, b_major = _layout(random)
        m = _rows(random, 1024, a_major)
        return MatmulWorkload(m, n, k, random.randint(2, 32), a_major=a_major, b_major=b_major)
    dtype = random.choices((BF16, F16, E4M3), (5, 3, 2))[0]
    a_major, b_major = ("k", "k") if dtype is E4M3 else _layout(random)
    m = _rows(random, MOST_ROWS, a_major)
    if dtype is E4M3:  # of which torch asks for multiples of 16
        return MatmulWorkload(m, -(-n // 16) * 16, -(-k // 16) * 16, a_dtype=dtype, b_dtype=dtype)
    fused = random.randrange(8) == 0
    return MatmulWorkload(
        m,
        n,
        k,
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=dtype,
        a_major=a_major,
        b_major=b_major,
        bias=fused,
        activation="gelu" if fused else None,
    )


def _rows(random: Random, most: int, major: Major = "k") -> int:
    m = round(math.exp(random.uniform(0, math.log(most))))
    return m if major == "k" else -(-m // 8) * 8


def _multiple(random: Random) -> int:
    return 8 * round(math.exp(random.uniform(math.log(256), math.log(16384))) / 8)


def _layout(random: Random) -> tuple[Major, Major]:
    layouts: tuple[tuple[Major, Major], ...] = (("k", "k"), ("k", "mn"), ("mn", "k"), ("mn", "mn"))
    return random.choices(layouts, (10, 4, 3, 3))[0]


def _sizes(random: Random) -> tuple[int, ...]:
    """Rows of each group: a few have several times as many as most, as experts do; some may have none."""
    mean = _rows(random, 1024)
    others = [round(mean * random.lognormvariate(0, 1)) for _ in range(random.randint(3, 15))]
    return (*others, mean)


SUITE: Final = DrawnSuite("random", count=150, aims=(1.06, 0.98, 0.92), salt="tilekit", one=_drawn)
