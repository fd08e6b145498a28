"""The matmul on AMD's CDNA chips: waves that load, waves that multiply in registers and store, counters in LDS."""
