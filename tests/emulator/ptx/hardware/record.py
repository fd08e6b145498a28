"""Run every case on the GPU of this machine and store what came out.

python -m tests.emulator.ptx.hardware.record tests/emulator/ptx/hardware/h200.npz
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from tests.emulator.ptx.hardware.cases import Case, all_cases, module_text
from tilekit.runtime import driver
from tilekit.runtime.assembler import AssemblerError
from tilekit.runtime.launch import CudaModule
from tilekit.runtime.parameters import Pointer
from tilekit.runtime.prepared import LaunchConfig


def main(path: str) -> int:
    """Record all families; report cases that ptxas or the device refuses.

    Each family runs in a process of its own, since a case that traps takes the CUDA context with it; the family is then
    run again without
    that case.
    """
    records: dict[str, np.ndarray] = {}
    refused: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for family, cases in all_cases().items():
            part, skipped = Path(folder) / "part.npz", []
            while True:
                child = subprocess.run(
                    [sys.executable, "-m", __spec__.name, str(part), family, *skipped],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if child.returncode == 0:
                    break
                running = [line.removeprefix("RUN ") for line in child.stdout.splitlines() if line.startswith("RUN ")]
                if not running:
                    raise SystemExit(child.stderr)
                skipped.append(running[-1])
                refused.append(f"{running[-1]}: {child.stderr.strip().splitlines()[-1][:200]}")
            refused += [
                line.removeprefix("REFUSED ") for line in child.stdout.splitlines() if line.startswith("REFUSED ")
            ]
            records |= dict(np.load(part))
            print(f"{family}: {sum(case.name in records for case in cases)} of {len(cases)}", flush=True)
    np.savez_compressed(path, **records)
    print(f"{len(records)} cases, {Path(path).stat().st_size} bytes; refused {len(refused)}")
    for line in refused:
        print("REFUSED", line)
    return 0


def record_family(path: str, family: str, skipped: list[str]) -> int:
    """Record one family in this process, naming each case before it runs."""
    refused: list[str] = []
    cases = [case for case in all_cases()[family] if case.name not in skipped]
    good = cases if _loads(module_text(cases)) else [case for case in cases if _assembles(case, refused)]
    for line in refused:
        print("REFUSED", line)
    module = _load(module_text(good))
    records = {}
    for case in good:
        print("RUN", case.name, flush=True)
        records[case.name] = _run(module, case)
    np.savez(path, **records)
    return 0


def _load(text: str) -> CudaModule:
    from tilekit.runtime.assembler import assemble

    name = text.split(".visible .entry ", 1)[1].split("(", 1)[0]
    return CudaModule.load(assemble(text, "sm_90a", kernel_name=name).image)


def _loads(text: str) -> bool:
    try:
        _load(text)
    except AssemblerError:
        return False
    return True


def _assembles(case: Case, refused: list[str]) -> bool:
    try:
        _load(module_text([case]))
    except AssemblerError as error:
        refused.append(f"{case.name}: {str(error)[:300]}")
        return False
    return True


def _run(module: CudaModule, case: Case) -> np.ndarray:
    context = driver.context_for(0)
    with driver.activated(context):
        addresses = []
        for array in case.inputs:
            address = driver.call("cuMemAlloc", array.nbytes)
            data = np.ascontiguousarray(array)
            driver.call("cuMemcpyHtoD", address, data.ctypes.data, data.nbytes)
            addresses.append(address)
        out = driver.call("cuMemAlloc", case.output)
        driver.call("cuMemsetD8", out, 0, case.output)
        config = LaunchConfig(
            grid=(case.cluster, 1, 1),
            block=(case.block, 1, 1),
            cluster=(case.cluster, 1, 1),
            shared_bytes=case.shared_bytes,
        )
        parameters = [Pointer(int(a)) for a in (*addresses, out)]
        module.kernel(case.symbol).prepare(config, parameters, ordinal=0)()
        result = np.zeros(case.output, np.uint8)
        driver.call("cuMemcpyDtoH", result.ctypes.data, out, case.output)
        for address in (*addresses, out):
            driver.call("cuMemFree", address)
    return result


if __name__ == "__main__":
    arguments = sys.argv[1:]
    raise SystemExit(main(arguments[0]) if len(arguments) == 1 else record_family(*arguments[:2], arguments[2:]))
