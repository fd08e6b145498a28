// Exchanges among the lanes of a wave.

//! fragment  broadcast
//! about     The `value` of lane `lane`, in all lanes.
//! in        value   u32
//! out       result  u32  scalar
//! imm       lane    0..63
//! kind      scalar
//! aligned
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, V_READLANE_B32
v_readlane_b32 ${result}, ${value}, ${lane}

//! fragment  shuffle_xor_f32
//! about     The `value` of the lane whose index differs from this one's in the bits of `mask`.
//! in        value   f32
//! out       result  f32
//! temp      lane    u32
//! imm       mask    1..63
//! kind      scalar
//! aligned
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, DS_BPERMUTE_B32: an exchange through LDS's crossbar, by the lane's number times 4
v_mbcnt_lo_u32_b32 ${lane}, -1, 0
v_mbcnt_hi_u32_b32 ${lane}, -1, ${lane}
v_xor_b32 ${lane}, ${mask}, ${lane}
v_lshlrev_b32 ${lane}, 2, ${lane}
ds_bpermute_b32 ${result}, ${lane}, ${value}

//! fragment  elect
//! about     True in exactly one lane of the wave: the first.
//! out       elected  pred
//! kind      control
//! target    gfx9
//! see       a predicate has a bit for each lane
s_mov_b64 ${elected}, 1
