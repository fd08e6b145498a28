"""How fast a loop of AMDGCN text runs on a compute unit, by a model: clocks a turn, matrix cores' share, what stalls.

The text may be of any origin: the model replays instructions and knows no kernel. :func:`replay_loop` is the way in;
`machine` holds every figure with its source, `steps` what an instruction costs, `path` which instructions each wave
executes, `replay` the clocks, `report` what comes out.
"""

from tilekit.cycles.loop import replay_loop
from tilekit.cycles.machine import FIGURES, Machine
from tilekit.cycles.report import LoopReport

__all__ = ["FIGURES", "LoopReport", "Machine", "replay_loop"]
