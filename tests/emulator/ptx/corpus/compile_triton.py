"""Compile the Triton and Gluon kernels to ``ptx/triton``; needs no GPU, but a Python with Triton 3.9.

Run as ``python compile_triton.py [name …]``; without names, every variant is compiled.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
os.environ["TRITON_CACHE_DIR"] = os.environ.get("CORPUS_CACHE") or tempfile.mkdtemp()

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton_kernels.variants import VARIANTS, Variant

HERE = Path(__file__).parent
for _source in sorted((HERE / "triton_kernels").glob("*.py")):
    importlib.import_module(f"triton_kernels.{_source.stem}")


def descriptor(dtype: str, block: list[int], ctas: list[list[int]] | None = None, im2col_rank: int = 0) -> str:
    """Gluon's type of a tensor map: its box, how the CTAs of a cluster divide it, and the tensor's rank for im2col."""
    element = getattr(gl, {"fp16": "float16", "bf16": "bfloat16", "u8": "uint8", "fp8e4nv": "float8e4nv"}[dtype])
    layout = gl.NVMMASharedLayout.get_default_for(block, element, cga_layout=ctas)
    mode, rank = ("_im2col", f",input_rank={im2col_rank}") if im2col_rank else ("", "")
    return f"tensordesc{mode}<{dtype}[{','.join(map(str, block))}],{layout!r}{rank}>"


def compile_variant(variant: Variant, target: str) -> None:
    """Write the PTX of a variant for a target such as ``sm_90a``."""
    number = int(target.strip("sm_a"))
    names = [n for n in variant.kernel.arg_names if n not in variant.constants]
    kinds = variant.types.split()
    assert len(names) == len(kinds), (variant.name, names, kinds)
    positions = {n: i for i, n in enumerate(variant.kernel.arg_names)}
    signature: dict[str, Any] = dict.fromkeys(variant.kernel.arg_names, "constexpr")
    attributes = {}
    for name, kind in zip(names, kinds, strict=True):
        kind, _, divisible = kind.partition(":")
        if "desc" in kind:
            kind = kind.replace("~", ", ")
        if divisible or kind.startswith("*"):
            attributes[(positions[name],)] = [["tt.divisibility", 16]]
        signature[name] = descriptor(*variant.descriptors[name]) if name in variant.descriptors else kind
    source = GluonASTSource if variant.kernel.is_gluon() else ASTSource
    options = {"num_warps": 4, "ptx_version": 88 if number >= 100 else 87} | variant.options
    compiled = triton.compile(
        source(variant.kernel, signature, variant.constants, attributes),
        target=GPUTarget("cuda", number, 32),
        options=options,
    )
    text, metadata = compiled.asm["ptx"].rstrip("\0").strip() + "\n", compiled.metadata
    launch = {
        "entry": metadata.name,
        "threads": metadata.num_warps * 32,
        "shared_bytes": metadata.shared,
        "cluster": metadata.num_ctas,
        "scratch": [metadata.global_scratch_size, metadata.profile_scratch_size],
    }
    lines = {
        "producer": f"Triton {triton.__version__}",
        "source": f"{variant.kernel.fn.__module__.replace('.', '/')}.py, {variant.kernel.fn.__name__}",
        "signature": variant.types.replace("~", ","),
        "constants": json.dumps({k: str(v) for k, v in variant.constants.items()}),
        "options": json.dumps(options),
        "launch": json.dumps(launch),
    }
    if metadata.tensordesc_meta:
        lines["descriptors"] = json.dumps(metadata.tensordesc_meta, default=str)
    path = HERE / "ptx" / "triton" / f"{variant.name}.{target}.ptx"
    path.write_text("".join(f"// {k}: {v}\n" for k, v in lines.items()) + text)
    print(f"{path.name}: {len(text):,} bytes, {launch}, {lines.get('descriptors', '')}", flush=True)


if __name__ == "__main__":
    for variant in VARIANTS:
        if len(sys.argv) < 2 or variant.name in sys.argv[1:]:
            for target in variant.targets:
                try:
                    compile_variant(variant, target)
                except Exception as error:  # report and go on with the others
                    print(f"{variant.name}.{target}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
