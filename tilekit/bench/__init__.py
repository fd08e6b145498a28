"""Honest benchmarks: contestants in turn in one process, on rotated buffers, in the state the load keeps the card in.

What is measured: `workload` and `grouped`, and `suites`, the fixed lists of them. By whom: `entrants`, `tuning`. How:
`machine` is what is asked of torch or CuPy, `contest` the measurement, `clocks` the card's clock and power beside it,
`matmul` a case, `session` a list of them, `host` the calls alone. What comes of it: `record` the file, `report` the
tables, `roofline` the plot. The other peers live in the repository's ``benchmarks/peers`` folder.
"""
