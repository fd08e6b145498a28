"""What is AMDGCN's: the language, its instructions, waves and workgroups, wait counters, matrix cores.

What an emulator of any GPU needs (faults, memory, happens-before, schedules, reports) is in
:mod:`tilekit.emulator.core`, which imports nothing of this room.
"""
