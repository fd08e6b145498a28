"""Honest benchmarks: contestants in turn in one process, on rotated buffers, in the state the load keeps the card in.

`machine` is what the harness asks of torch or CuPy, `contest` the measurement, `clocks` the card's clock and power
beside it, `workload`, `matmul` and `host` what is measured, `report` the tables. The lists of cases and the other peers
live in the repository's ``benchmarks/`` folder.
"""
