"""Small mistakes planted in the framework's Python at random, and whether its tests notice (docs/mutants.md).

`tests.mutations` plants mistakes in PTX instead, and asks whether the emulator notices.
"""
