// What a wave asks of the scheduler.

//! fragment  priority
//! about     Issue before waves of lower priority on the same SIMD.
//! imm       level  0..3
//! kind      control
//! target    gfx9
//! see       CDNA4 ISA, S_SETPRIO
s_setprio ${level}

//! fragment  sleep
//! about     Let others run for about 64 `turns` clocks.
//! imm       turns  1..127
//! kind      control
//! target    gfx9
//! see       CDNA4 ISA, S_SLEEP
s_sleep ${turns}
