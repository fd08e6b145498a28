// Counters in shared memory that stand for barriers where a chip has none, or too few: arrivals, and phases of so many.

//! fragment  clear
//! about     No arrival yet.
//! in        address  smem
//! temp      zero     u32
//! kind      sync
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B32
v_mov_b32 ${zero}, 0
ds_write_b32 ${address}, ${zero}

//! fragment  arrive
//! about     Arrive once if `active`; what this thread has read and written in shared memory comes before.
//! in        address  smem
//! in        active   pred
//! temp      one      u32
//! temp      lanes    pred
//! kind      sync
//! target    gfx9
//! see       CDNA4 ISA, DS_ADD_U32
v_mov_b32 ${one}, 1
s_waitcnt lgkmcnt(0)
s_and_saveexec_b64 ${lanes}, ${active}
ds_add_u32 ${address}, ${one}
s_mov_b64 exec, ${lanes}

//! fragment  wait_parity
//! about     Wait until the phase of `arrivals` with this parity has completed; what came before those is then visible. Right
//!           for the first 2^32 arrivals.
//! in        address   smem  scalar
//! in        parity    b32   scalar
//! imm       arrivals  1..65536
//! temp      place     smem
//! temp      count     u32
//! temp      twice     u32
//! temp      inverse   u32
//! temp      error     u32
//! temp      now       u32
//! temp      phase     u32
//! temp      rest      u32
//! kind      wait
//! target    gfx9
//! see       `inverse` is 2^32 / arrivals, from V_RCP_IFLAG_F32 and one step of Newton's; the phase that it gives is at most
//!           2 too small. DS_READ_B32 is an atomic load in LDS; lanes that read one address share the read
v_mov_b32 ${place}, ${address}
v_mov_b32 ${count}, ${arrivals}
v_lshlrev_b32 ${twice}, 1, ${count}
v_cvt_f32_u32 ${inverse}, ${count}
v_rcp_iflag_f32 ${inverse}, ${inverse}
v_mul_f32 ${inverse}, 0x4f7ffffe, ${inverse}
v_cvt_u32_f32 ${inverse}, ${inverse}
v_sub_u32 ${error}, 0, ${count}
v_mul_lo_u32 ${error}, ${error}, ${inverse}
v_mul_hi_u32 ${error}, ${inverse}, ${error}
v_add_u32 ${inverse}, ${inverse}, ${error}
wait:
s_sleep 1
ds_read_b32 ${now}, ${place}
v_mul_hi_u32 ${phase}, ${now}, ${inverse}
v_mul_lo_u32 ${rest}, ${phase}, ${count}
v_sub_u32 ${rest}, ${now}, ${rest}
v_cmp_ge_u32 vcc, ${rest}, ${count}
v_addc_co_u32 ${phase}, vcc, 0, ${phase}, vcc
v_cmp_ge_u32 vcc, ${rest}, ${twice}
v_addc_co_u32 ${phase}, vcc, 0, ${phase}, vcc
v_and_b32 ${phase}, 1, ${phase}
v_cmp_eq_u32 vcc, ${parity}, ${phase}
s_cbranch_vccnz wait

//! fragment  wait_within
//! about     Wait until the arrivals so far plus `ahead` are among the first `arrivals` of a period; what came before them
//!           is then visible. Right for the first 2^32 arrivals.
//! in        address   smem  scalar
//! in        ahead     u32   scalar
//! imm       period    1..131072
//! imm       arrivals  1..65536
//! temp      place     smem
//! temp      count     u32
//! temp      inverse   u32
//! temp      error     u32
//! temp      now       u32
//! temp      rest      u32
//! kind      wait
//! target    gfx9
//! see       as wait_parity; a remainder that is too large by one or two periods is the larger of itself and one less
v_mov_b32 ${place}, ${address}
v_mov_b32 ${count}, ${period}
v_cvt_f32_u32 ${inverse}, ${count}
v_rcp_iflag_f32 ${inverse}, ${inverse}
v_mul_f32 ${inverse}, 0x4f7ffffe, ${inverse}
v_cvt_u32_f32 ${inverse}, ${inverse}
v_sub_u32 ${error}, 0, ${count}
v_mul_lo_u32 ${error}, ${error}, ${inverse}
v_mul_hi_u32 ${error}, ${inverse}, ${error}
v_add_u32 ${inverse}, ${inverse}, ${error}
wait:
s_sleep 1
ds_read_b32 ${now}, ${place}
v_add_u32 ${now}, ${ahead}, ${now}
v_mul_hi_u32 ${rest}, ${now}, ${inverse}
v_mul_lo_u32 ${rest}, ${rest}, ${count}
v_sub_u32 ${now}, ${now}, ${rest}
v_sub_u32 ${rest}, ${now}, ${count}
v_min_u32 ${now}, ${now}, ${rest}
v_sub_u32 ${rest}, ${now}, ${count}
v_min_u32 ${now}, ${now}, ${rest}
v_cmp_le_u32 vcc, ${arrivals}, ${now}
s_cbranch_vccnz wait
