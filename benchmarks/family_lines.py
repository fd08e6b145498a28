"""How many lines a kernel family has of its own: `python -m benchmarks.family_lines`.

Blanks, comments and docstrings do not count; imports do. What a family shares with others stands elsewhere and does not
count either.
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONV2D, BLOCK_SCALED, BLOCKWISE = (
    ROOT / "tilekit" / "kernels" / name for name in ("conv2d", "block_scaled", "blockwise")
)

ATTENTION = ROOT / "tilekit" / "kernels" / "attention"


def _of(folder: str, *names: str) -> tuple[Path, ...]:
    return tuple(ROOT / "tilekit" / folder / f"{name}.py" for name in names)


PARTS: dict[str, tuple[Path, ...]] = {
    "conv2d: im2col loader, spec, entry": tuple(CONV2D / f"{name}.py" for name in ("im2col", "spec", "family")),
    "conv2d: reading a call": tuple(
        CONV2D / f"{name}.py" for name in ("arguments", "pixels", "axes", "problem", "images")
    ),
    "conv2d: a Python epilogue's operands and results": (CONV2D / "written.py",),
    "conv2d: binding": (CONV2D / "compiled.py",),
    "conv2d: the threads' loaders": tuple(CONV2D / f"{name}.py" for name in ("gather", "lines", "threads")),
    "conv2d: the loader of chips without such an engine": (CONV2D / "copied.py",),
    "conv2d: its spec, reading a call, chips": tuple(
        CONV2D / f"{name}.py" for name in ("copied_spec", "copied_problem", "copied_build", "chips")
    ),
    "conv2d: gradients": (ROOT / "tilekit" / "calls" / "conv2d_gradients.py",),
    "conv2d: gradients without copies": (
        ROOT / "tilekit" / "calls" / "conv2d_products.py",
        ROOT / "tilekit" / "kernels" / "addition.py",
        *(CONV2D / f"{name}.py" for name in ("over_pixels", "filter_gradient", "turned")),
    ),
    "conv2d: images' gradients with a stride": tuple(CONV2D / f"{name}.py" for name in ("phases", "phased")),
    "block_scaled: payload, op, spec, entry": (
        ROOT / "tilekit" / "tile_op" / "block_scaled.py",
        *(BLOCK_SCALED / f"{name}.py" for name in ("payload", "spec", "family")),
    ),
    "block_scaled: scales of waves, chips": tuple(
        BLOCK_SCALED / f"{name}.py" for name in ("wave_scales", "scaling_chips")
    ),
    "block_scaled: reading a call": tuple(BLOCK_SCALED / f"{name}.py" for name in ("arguments", "scales")),
    "block_scaled: quantised outputs": (
        *_of("epilogue", "quantised", "row_images"),
        BLOCK_SCALED / "quantised.py",
    ),
    "block_scaled: binding": (BLOCK_SCALED / "compiled.py",),
    "block_scaled: the kernel that lays scales out": (BLOCK_SCALED / "layout.py",),
    "blockwise: payload and factors, spec, entry": tuple(
        BLOCKWISE / f"{name}.py" for name in ("scales", "spec", "family")
    ),
    "blockwise: accumulators with factors, reads ahead": (
        ROOT / "tilekit" / "tile_op" / "scaled_accumulators.py",
        ROOT / "tilekit" / "tile_io" / "ahead.py",
    ),
    "blockwise: values in the stages": (ROOT / "tilekit" / "tile_io" / "staged_values.py",),
    "blockwise: reading a call": (BLOCKWISE / "arguments.py",),
    "blockwise: binding": (BLOCKWISE / "compiled.py",),
    "scaled products: which family, keywords, what is nearest": (
        *_of("kernels", "scaled_calls"),
        *(ROOT / "tilekit" / "kernels" / "scaled" / f"{name}.py" for name in ("keywords", "views", "elsewhere")),
    ),
    "attention: loads, tiles and their order": (
        *_of("drivers", "head_loads"),
        *_of("tile_io", "heads"),
        *_of("tiles", "heads"),
        *_of("tile_schedule", "heads", "claims"),
    ),
    "attention: softmax, masks, scores of one's own": _of(
        "tile_op", "online_softmax", "score_layout", "key_range", "changed_scores"
    ),
    "attention, sm_90a: role loops, turns, products": (
        *_of("drivers", "attention", "turns"),
        *_of("tile_op", "attention_wgmma"),
    ),
    "attention, sm_90a: output, shares": _of("epilogue", "heads", "shared_heads", "shares"),
    "attention, sm_90a: config, composition": (ATTENTION / "config.py", ATTENTION / "kernel.py"),
    "attention, sm_100a: role loops, products, tensor memory": (
        *_of("drivers", "tensor_attention"),
        *_of("tile_op", "attention_tcgen05", "attention_tensors", "row_exchange"),
    ),
    "attention, sm_100a: output, shares": _of("epilogue", "tensor_heads"),
    "attention, sm_100a: config, composition, model": tuple(
        ATTENTION / "sm_100a" / f"{name}.py" for name in ("config", "kernel", "model")
    ),
    "attention: spec, chips, entry, tuning": (
        *(ATTENTION / f"{name}.py" for name in ("spec", "platforms", "family", "choices", "candidates")),
        ATTENTION / "sm_100a" / "candidates.py",
    ),
    "attention: reading a call, binding": tuple(
        ATTENTION / f"{name}.py" for name in ("arguments", "repeated", "compiled")
    ),
    "attention: caches and packed sequences": (
        *_of("tile_io", "key_cache", "packed_heads"),
        *_of("tile_schedule", "packed_heads"),
        *_of("tile_op", "key_lengths"),
        *(ATTENTION / f"{name}.py" for name in ("cache", "packed")),
    ),
    "attention: notes of times, components of one's own": (
        *_of("drivers", "head_clocks"),
        *_of("compose", "attention"),
    ),
}
"""What is counted together."""


def code_lines(text: str) -> set[int]:
    """The lines of a module that hold code."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def counted() -> dict[str, int]:
    """Lines of each part, and how many lines of conv2d name the residual."""
    found = {name: sum(len(code_lines(file.read_text("utf-8"))) for file in files) for name, files in PARTS.items()}
    residual = 0
    for file in (file for name, files in PARTS.items() if name.startswith("conv2d") for file in files):
        text = file.read_text("utf-8")
        residual += sum("residual" in text.splitlines()[line - 1] for line in code_lines(text))
    return found | {"conv2d: lines that name a residual": residual}


def main() -> None:
    """Print a table."""
    for name, lines in counted().items():
        print(f"{lines:5}  {name}")


if __name__ == "__main__":
    main()
