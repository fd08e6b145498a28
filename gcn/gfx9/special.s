// Who a thread is, and clocks.

//! fragment  thread_index
//! about     Index of the thread within its (one-dimensional) CTA.
//! given     workitem
//! out       thread  u32
//! kind      scalar
//! target    gfx9
//! see       LLVM, User Guide for AMDGPU, VGPR Register Set Up Order (packed work-item ids)
v_and_b32 ${thread}, 0x3ff, ${workitem}

//! fragment  lane_index
//! about     Index of the thread within its wave.
//! out       lane  u32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MBCNT_LO_U32_B32: bits of a mask in the lanes below
v_mbcnt_lo_u32_b32 ${lane}, -1, 0
v_mbcnt_hi_u32_b32 ${lane}, -1, ${lane}

//! fragment  warp_index
//! about     Index of the wave within its (one-dimensional) CTA.
//! given     workitem
//! temp      wave  u32
//! out       warp  u32  scalar
//! kind      scalar
//! aligned
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, V_READFIRSTLANE_B32
v_bfe_u32 ${wave}, ${workitem}, 6, 4
v_readfirstlane_b32 ${warp}, ${wave}

//! fragment  cta_index
//! about     Index of the CTA in the (one-dimensional) grid.
//! given     workgroup
//! out       index  u32  scalar
//! kind      scalar
//! uniform
//! target    gfx9
//! see       LLVM, User Guide for AMDGPU, SGPR Register Set Up Order
s_mov_b32 ${index}, ${workgroup}

//! fragment  cta_count
//! about     Number of CTAs of the (one-dimensional) grid.
//! given     kernarg
//! given     block_count
//! out       count  u32  scalar
//! kind      scalar
//! uniform
//! target    gfx9
//! see       LLVM, User Guide for AMDGPU, hidden_block_count_x
s_load_dword ${count}, ${kernarg}, ${block_count}

//! fragment  clock
//! about     Lower 32 bits of the compute unit's cycle counter.
//! out       cycles  u32  scalar
//! temp      all     u64  scalar
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, S_MEMTIME
s_memtime ${all}
s_mov_b32 ${cycles}, ${all[0]}

//! fragment  global_timer
//! about     Time in ns, the same on all compute units, in steps of 10 ns.
//! out       time  u64  scalar
//! temp      ticks  u64  scalar
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, S_MEMREALTIME: a clock of 100 MHz
s_memrealtime ${ticks}
s_mul_i32 ${time[1]}, ${ticks[1]}, 10
s_mul_hi_u32 ${time[0]}, ${ticks[0]}, 10
s_add_u32 ${time[1]}, ${time[1]}, ${time[0]}
s_mul_i32 ${time[0]}, ${ticks[0]}, 10
