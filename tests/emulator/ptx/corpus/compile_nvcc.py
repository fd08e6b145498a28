"""Compile the CUDA kernels to ``ptx/nvcc`` for the targets that each file's first line names; needs nvcc, but no GPU.

A second line ``// options: -G`` stands for ``-O3``.

Run as ``python compile_nvcc.py [name …]``; without names, every kernel is compiled.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"


def compile_kernel(source: Path, target: str) -> None:
    """Write the PTX of a source for a target such as ``sm_90a``."""
    own = re.search(r"^// options: (.*)$", source.read_text(), re.MULTILINE)
    options = ["-ptx", f"-arch={target}", "-std=c++17", *(own[1].split() if own else ["-O3"])]
    command = [NVCC, *options, source.name, "-o", "-"]
    text = subprocess.run(command, cwd=source.parent, check=True, capture_output=True, text=True).stdout
    cluster = re.search(r"\.reqnctapercluster (\d+)", text)
    lines = {
        "producer": "nvcc " + re.findall(r"release [^\n]*", text)[0],
        "source": f"cuda_kernels/{source.name}",
        "options": " ".join(options),
        "launch": json.dumps({"entry": source.stem, "cluster": int(cluster[1]) if cluster else 1}),
    }
    path = HERE / "ptx" / "nvcc" / f"{source.stem}.{target}.ptx"
    path.write_text("".join(f"// {key}: {value}\n" for key, value in lines.items()) + text.strip() + "\n")
    print(f"{path.name}: {len(text):,} bytes")


if __name__ == "__main__":
    for source in sorted((HERE / "cuda_kernels").glob("*.cu")):
        if len(sys.argv) < 2 or source.stem in sys.argv[1:]:
            for target in source.read_text().split("\n", 1)[0].removeprefix("// targets: ").split():
                try:
                    compile_kernel(source, target)
                except subprocess.CalledProcessError as error:
                    print(f"{source.stem}.{target}: {error.stderr[:2000]}")
