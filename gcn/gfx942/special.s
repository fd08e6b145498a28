// Where a thread runs.

//! fragment  sm_id
//! about     Index of the compute unit that runs the thread: 128 to each of the chip's dies.
//! out       sm   u32  scalar
//! temp      die  u32  scalar
//! kind      scalar
//! uniform
//! target    gfx942
//! see       CDNA3 ISA, Hardware Register: HW_ID (compute unit, array and engine in bits 8 to 14), XCC_ID
s_getreg_b32 ${die}, hwreg(HW_REG_XCC_ID, 0, 4)
s_getreg_b32 ${sm}, hwreg(HW_REG_HW_ID, 8, 7)
s_lshl_b32 ${die}, ${die}, 7
s_or_b32 ${sm}, ${sm}, ${die}
