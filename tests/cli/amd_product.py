"""A kernel file for an AMD chip, for the command line."""

import runpy
from pathlib import Path

import tilekit.compose as tk

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compose_amd_matmul.py"
product = runpy.run_path(str(EXAMPLE))["composed"]("gfx950", tk.SplitCounterSync, tk.BufferLoader)
