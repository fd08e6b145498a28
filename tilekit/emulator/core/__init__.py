"""What any GPU's emulator shares: faults and their words, memory, order and races, deadlocks, schedules, reports.

From the bottom up: `errors`, `banks`; `arithmetic`, `symbols`, `memory`; `checks`; `schedules`, `statistics`; `report`;
`explore`, `interleaving`; `observation`; and `blas` and `collector`, which hold NumPy's threads and Python's collector
back. Nothing here imports a room beside this one, not even for a type.
"""
