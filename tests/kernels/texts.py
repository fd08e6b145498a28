"""Whether a refactoring changed any kernel: the texts of two commits, compared.

    python -m tests.kernels.texts --against main      # the working tree and a commit
    python -m tests.kernels.texts --write texts.json  # the working tree's, by spec and config
    python -m tests.kernels.texts --against main --renamed  # the same, but for names of registers and parameters

Some thousand kernels of both chips: every spec of the tests with the configs that the picker may choose and those
chosen by hand, both going round, and the kernels of other families. Comments, which name Python lines, do not count.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tests.kernels.matmul_specs import CHIPS, all_specs, legal_configs
from tilekit.dtypes import BF16, E4M3, E5M2, F16, F32, DType
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.kernel import trace as trace_gemv
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import SM_90A, SM_100A, Target

CONFIGS_EACH = 4
"""Configs of a spec; which ones goes round, so that every config meets some specs."""


def texts() -> Iterator[tuple[str, str]]:
    """Names and texts."""
    for chip in CHIPS:
        grouped = [MatmulSpec(groups=kind) for kind in ("ends", "counts")]
        for turn, spec in enumerate([*all_specs(chip), *grouped]):
            configs = legal_configs(spec, chip)
            for step in range(min(CONFIGS_EACH, len(configs))):
                config = configs[(turn * 7 + step * (len(configs) // CONFIGS_EACH + 1)) % len(configs)]
                yield f"{chip.name} {turn}.{step} {spec.name}: {config}", trace(spec, config, chip).assembly
        for spec in (*convolutions(), *with_scales(chip)):
            configs = legal_configs(spec, chip)
            for config in configs[:: len(configs) // CONFIGS_EACH + 1]:
                yield f"{chip.name} {spec.name}: {config}", trace(spec, config, chip).assembly
    yield from block_scaled()
    yield from attention()
    functions = (ElementwiseSpec(), ElementwiseSpec(scale="value", bias=F32, activation="gelu", scale_a=True))
    weights: tuple[tuple[DType, Literal["k", "mn"]], ...] = ((BF16, "k"), (BF16, "mn"), (E4M3, "k"))
    for (dtype, major), tokens, what in product(weights, (1, 4, 8), functions):
        gemv = GemvSpec(a_dtype=dtype, b_dtype=dtype, b_major=major, tokens=tokens, functions=what)
        for cluster in (1, 2):
            shape = GemvConfig(cluster=cluster)
            if not shape.problems(SM_90A, gemv):
                yield f"{gemv.name}: {shape}", trace_gemv(gemv, shape, SM_90A).assembly


def with_scales(chip: Target) -> list[MatmulSpec]:
    """Specs of products with scales of blocks: how scales are loaded, groups and functions going round."""
    if importlib.util.find_spec("tilekit.kernels.blockwise") is None:
        return []
    from tilekit.kernels.blockwise.spec import BlockwiseSpec

    ways = ("tma", "direct") if chip is SM_90A else ("direct",)
    plain = (ElementwiseSpec(), ElementwiseSpec(bias=F32, activation="silu"))
    dense: list[MatmulSpec] = [BlockwiseSpec(scale_load=way, functions=what) for way, what in product(ways, plain)]
    grouped = [BlockwiseSpec(scale_load=way, groups=kind) for way, kind in product(ways, ("ends", "counts"))]
    return [*dense, *grouped, BlockwiseSpec(store="direct", out_dtype=F32)]


def convolutions() -> list[MatmulSpec]:
    """Specs of each loader of convolutions, functions and groups going round."""
    if importlib.util.find_spec("tilekit.kernels.conv2d") is None:
        return []  # an earlier commit, which runs this file too
    from tilekit.kernels.conv2d.spec import ConvSpec

    threads: Any = ConvSpec  # of an earlier commit
    if importlib.util.find_spec("tilekit.kernels.conv2d.threads") is not None:
        from tilekit.kernels.conv2d.threads import ThreadSpec

        threads = ThreadSpec
    loads: list[dict[str, Any]] = [{"swizzle": s, "im2col_b": b} for s in (128, 64, 32, 0) for b in (False, True)]
    loads += [{"a_load": a, "b_load": b} for a, b in ((2, 2), (8, 8), (4, 2))]
    functions = (ElementwiseSpec(), ElementwiseSpec(bias=F32, activation="relu"), ElementwiseSpec(residual=BF16))
    found: list[MatmulSpec] = []
    for turn, (load, function) in enumerate(product(loads, functions)):
        store = "direct" if "a_load" in load and function.residual else "tma"
        batched = turn % 4 == 3 and function.bias is None and not load.get("im2col_b")
        kind = threads if "a_load" in load else ConvSpec
        found.append(kind(functions=function, store=store, batched=batched, **load))
    return found


def block_scaled() -> Iterator[tuple[str, str]]:
    """Names and texts of each format on the chip that has them, and of what lays scales out."""
    if importlib.util.find_spec("tilekit.kernels.block_scaled") is None:
        return  # an earlier commit, which runs this file too
    from tilekit.dtypes import E2M1X2
    from tilekit.kernels.block_scaled.layout import LayoutKernel
    from tilekit.kernels.block_scaled.spec import BlockScaledSpec

    types = {"mxfp8": (E4M3, E5M2), "mxfp4": (E2M1X2, E2M1X2), "nvfp4": (E2M1X2, E2M1X2)}
    for scaled, (a, b) in types.items():
        for function in (ElementwiseSpec(), ElementwiseSpec(bias=F32, activation="relu", residual=BF16)):
            spec = BlockScaledSpec(a_dtype=a, b_dtype=b, functions=function, scaled=scaled)  # type: ignore[arg-type]
            configs = legal_configs(spec, SM_100A)
            for config in configs[:: len(configs) // CONFIGS_EACH + 1]:
                yield f"{SM_100A.name} {spec.name}: {config}", trace(spec, config, SM_100A).assembly
    yield f"{SM_100A.name} {LayoutKernel.name}", LayoutKernel(SM_100A).assembly


def attention() -> Iterator[tuple[str, str]]:
    """Names and texts of each head dim, mask and group, and of caches and packed sequences, with configs picked."""
    if importlib.util.find_spec("tilekit.kernels.attention") is None:
        return  # an earlier commit
    from tilekit.kernels.attention.platforms import PLATFORMS
    from tilekit.kernels.attention.spec import HEAD_DIMS, AttentionSpec

    chips = {chip.name: chip for chip in (SM_90A, SM_100A)}
    masks = [
        dict(zip(("right", "left", "softcap", "lse"), each, strict=True)) for each in product((False, True), repeat=4)
    ]
    for (name, platform), elements in product(PLATFORMS.items(), HEAD_DIMS):
        for turn, mask in enumerate(masks):
            group = (0, 0, 1, 8)[turn % 4] if elements <= 128 else 0
            spec = AttentionSpec(
                (BF16, F16)[turn % 2], elements, min(elements, 128) if turn % 3 else elements, group=group, **mask
            )
            for queries in (100, 5000):
                config = platform.default(spec, chips[name], queries)
                yield f"{name} {spec.name} {queries}: {config}", platform.trace(spec, config, chips[name]).assembly
    kinds: list[dict[str, Any]] = [{"lengths": True}, {"lengths": True, "page": 48}, {"packed": True}]
    for (name, platform), (turn, mask), kind in product(PLATFORMS.items(), enumerate(masks), kinds):
        elements = HEAD_DIMS[turn % len(HEAD_DIMS)]
        group = 0 if "packed" in kind else (0, 2)[turn // 2 % 2]
        spec = AttentionSpec((BF16, F16)[turn % 2], elements, min(elements, 128), group=group, **mask, **kind)
        config = platform.default(spec, chips[name], (100, 5000)[turn // 4 % 2])
        yield f"{name} {spec.name}: {config}", platform.trace(spec, config, chips[name]).assembly


_DECLARED = re.compile(r"^\s*(?:\.reg \.\w+ (?P<registers>[^;]+);|(?P<label>\w+):)|\b(?P<parameter>\w+_param)\b", re.M)
_WORD = re.compile(r"(?<![\w.%$])[A-Za-z_]\w*(?![\w.])")


def digests(*, renamed: bool = False) -> dict[str, str]:
    """A digest of each text without comments and trailing blanks; if `renamed`, whatever its names are."""
    found: dict[str, str] = {}
    for name, text in texts():
        bare = "\n".join(line.split("//")[0].rstrip() for line in text.splitlines())
        found[name] = hashlib.sha256((unnamed(bare) if renamed else bare).encode()).hexdigest()
    return found


def unnamed(text: str) -> str:
    """The text with what it declares, registers, labels and parameters, numbered in the order of its appearance.

    Declarations are left out: registers are declared in an order and in ranges that follow from their names.
    """
    declared: set[str] = set()
    for match in _DECLARED.finditer(text):
        if match["registers"] is None:
            declared.add(match["label"] or match["parameter"])
            continue
        for name in match["registers"].split(","):
            prefix, _, count = name.strip().rstrip(">").partition("<")
            declared |= {f"{prefix}{index}" for index in range(int(count))} if count else {prefix}
    numbers: dict[str, str] = {}
    body = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(".reg "))
    return _WORD.sub(lambda m: numbers.setdefault(m[0], f"n{len(numbers)}") if m[0] in declared else m[0], body)


def digests_at(revision: str, *, renamed: bool) -> dict[str, str]:
    """The digests of another commit, made by its own code; by this file where names do not count or it has none."""
    with tempfile.TemporaryDirectory() as folder:
        tree, out = Path(folder) / "tree", Path(folder) / "texts.json"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            script = tree / "tests/kernels/texts.py"
            if renamed or not script.exists():
                script.write_text(Path(__file__).read_text("utf-8"), "utf-8")
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            command = [
                sys.executable,
                "-m",
                "tests.kernels.texts",
                "--write",
                str(out),
                *(["--renamed"] if renamed else []),
            ]
            subprocess.run(command, check=True, cwd=tree, env=environment)
            kept: dict[str, str] = json.loads(out.read_text("utf-8"))
            return kept
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True)


def main(
    against: Annotated[str | None, typer.Option(help="A commit to compare the working tree with.")] = None,
    write: Annotated[Path | None, typer.Option(help="Where to write the working tree's digests.")] = None,
    renamed: Annotated[bool, typer.Option(help="Let names of registers, labels and parameters differ.")] = False,
) -> None:
    """Write the texts' digests, or compare them with another commit's; exits 1 where a text differs."""
    own = digests(renamed=renamed)
    if write is not None:
        write.write_text(json.dumps(own), "utf-8")
    if against is None:
        print(f"{len(own)} texts")
        return
    other = digests_at(against, renamed=renamed)
    both = own.keys() & other.keys()
    different = sorted(name for name in both if own[name] != other[name])
    print(f"{len(both)} texts in both, {len(different)} differ; {len(own) - len(both)} only here, "
          f"{len(other) - len(both)} only at {against}")  # fmt: skip
    for name in different:
        print(f"  {name}")
    raise typer.Exit(bool(different))


if __name__ == "__main__":
    typer.run(main)
