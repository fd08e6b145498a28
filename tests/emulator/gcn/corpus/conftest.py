"""The foreign kernels for AMD chips share the references of the PTX corpus."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "ptx" / "corpus"))
