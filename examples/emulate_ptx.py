"""The emulator by itself: run a PTX file that tilekit did not write, then break it twice and read what is reported.

Nothing but `tilekit.emulator` is imported, and no GPU, driver or assembler is needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilekit.emulator import Deadlock, Device, LaunchReport, RaceError

TEXT = Path(__file__).with_name("double.ptx").read_text()
CHUNKS = 6
READ = "ld.shared.f32 x, [buffer];"
RELEASE = "mbarrier.arrive.shared::cta.b64 _, [full + 272];"


def run(text: str, seed: int = 0) -> LaunchReport:
    """Launch ``double_it`` of `text` and check its output."""
    device = Device("sm_90a", seed=seed)
    x = np.arange(32 * CHUNKS, dtype=np.float32)
    source, result = device.buffer(x, "x"), device.buffer(np.full_like(x, np.nan), "result")
    report = device.load(text)["double_it"].launch(
        grid=1, block=64, shared_bytes=288, args=[source, result, np.uint32(CHUNKS)]
    )
    assert (result.read() == 2 * x).all()
    return report


def main() -> None:
    """Run the program as it is, with a race, and with a hang."""
    print(run(TEXT), end="\n\n")

    # The reader gives its stage back before it has read it. On a GPU nearly every run would still be right.
    try:
        run(TEXT.replace(RELEASE, "(read)").replace(READ, RELEASE).replace("(read)", READ))
    except RaceError as race:
        print(race, end="\n\n")

    # The reader never gives a stage back: the copy fills two, then every role waits.
    try:
        run(TEXT.replace(RELEASE, ""))
    except Deadlock as hang:
        print(hang)


if __name__ == "__main__":
    main()
