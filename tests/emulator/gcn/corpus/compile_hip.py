"""Compile the corpus' Triton kernels for AMD chips to ``asm``; needs no GPU, but a Python with Triton 3.9.

Run as ``python compile_hip.py [name …]``; without names, every variant that Triton compiles for a chip is written. The
kernels are those of the PTX corpus beside, so that one reference serves both machines.
"""

from __future__ import annotations

import importlib
import json
import lzma
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
os.environ["TRITON_CACHE_DIR"] = os.environ.get("CORPUS_CACHE") or tempfile.mkdtemp()

sys.path.insert(0, str(Path(__file__).parents[2] / "ptx" / "corpus"))
sys.path.insert(0, str(Path(__file__).parent))

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource
from triton_kernels.variants import VARIANTS, Variant

HERE = Path(__file__).parent
for _source in ("elementwise", "reductions", "memory", "matmul", "models"):
    importlib.import_module(f"triton_kernels.{_source}")
for _source in ("hip_kernels", "hip_numbers", "hip_memory", "hip_matmul", "hip_models", "hip_gluon"):
    importlib.import_module(_source)

CHIPS = ("gfx942", "gfx950")
OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""What of a variant's options is the AMD compiler's; the others are of NVIDIA's, or ``buffer_ops``."""
OUT = Path(os.environ.get("CORPUS_OUT") or HERE / "asm")


def compile_variant(variant: Variant, chip: str) -> None:
    """Write the assembly text of a variant for a chip, below a header with what the compiler decided."""
    names = [n for n in variant.kernel.arg_names if n not in variant.constants]
    kinds = variant.types.split()
    positions = {n: i for i, n in enumerate(variant.kernel.arg_names)}
    signature: dict[str, Any] = dict.fromkeys(variant.kernel.arg_names, "constexpr")
    attributes = {}
    for name, kind in zip(names, kinds, strict=True):
        kind, _, divisible = kind.partition(":")
        if divisible or kind.startswith("*"):
            attributes[(positions[name],)] = [["tt.divisibility", 16]]
            if kind.startswith("*"):
                attributes[(positions[name],)].append(["tt.pointer_range", 32])
        signature[name] = kind
    options = {"num_warps": 4} | {k: v for k, v in variant.options.items() if k in OPTIONS}
    source = GluonASTSource if variant.kernel.is_gluon() else ASTSource
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_buffer_ops = variant.options.get("buffer_ops", True)
        compiled = triton.compile(
            source(variant.kernel, signature, variant.constants, attributes),
            target=GPUTarget("hip", chip, 64),
            options=options,
        )
    text, metadata = compiled.asm["amdgcn"].rstrip("\0").strip() + "\n", compiled.metadata
    launch = {
        "entry": metadata.name,
        "threads": metadata.num_warps * 64,
        "shared_bytes": metadata.shared,
        "scratch": [metadata.global_scratch_size, metadata.profile_scratch_size],
    }
    lines = {
        "producer": f"Triton {triton.__version__}",
        "source": f"{variant.kernel.fn.__module__.replace('.', '/')}.py, {variant.kernel.fn.__name__}",
        "signature": variant.types,
        "constants": json.dumps({k: str(v) for k, v in variant.constants.items()}),
        "options": json.dumps(options),
        "launch": json.dumps(launch),
    }
    OUT.mkdir(exist_ok=True)
    path = OUT / f"{variant.name}.{chip}.s.xz"
    data = "".join(f"; {k}: {v}\n" for k, v in lines.items()) + text
    path.write_bytes(lzma.compress(data.encode(), preset=9))
    print(f"{path.name}: {len(text):,} bytes, {launch}", flush=True)


if __name__ == "__main__":
    for variant in VARIANTS:
        if len(sys.argv) < 2 or variant.name in sys.argv[1:]:
            gluon = variant.kernel.is_gluon()
            chips = (
                variant.targets if variant.targets[0] in CHIPS else () if "desc" in variant.types or gluon else CHIPS
            )
            for chip in chips:
                try:
                    compile_variant(variant, chip)
                except Exception as error:  # report and go on with the others
                    print(f"{variant.name}.{chip}: {type(error).__name__}: {str(error)[:300]}", flush=True)
