"""The dialects that there are, by the instruction set that a target names."""

from __future__ import annotations

from typing import Final

from tilekit.assembly.dialect import Dialect
from tilekit.assembly.gcn.module import GcnDialect
from tilekit.assembly.ptx.module import PtxDialect

PTX: Final = PtxDialect()
GCN: Final = GcnDialect()
DIALECTS: dict[str, Dialect] = {dialect.isa: dialect for dialect in (PTX, GCN)}
