// Conversions: of accumulators to output types, and of narrow operands to wider ones.

//! fragment  bits_f32
//! about     The 32 bits of a whole number in a register of an f32.
//! in        whole   s32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MOV_B32
v_mov_b32 ${result}, ${whole}

//! fragment  bits_s32
//! about     The 32 bits of a register of an f32 as a whole number.
//! in        bits   f32
//! out       whole  s32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MOV_B32
v_mov_b32 ${whole}, ${bits}

//! fragment  float_s32
//! about     A whole number as f32, rounded to the nearest, half to even.
//! in        whole   s32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_CVT_F32_I32
v_cvt_f32_i32 ${result}, ${whole}

//! fragment  pack_bf16
//! about     Round two f32 to bf16, nearest even, and pack them; `low` goes to the lower half (the lower address).
//! in        low       f32
//! in        high      f32
//! out       packed    b32
//! temp      even      u32
//! temp      other     u32
//! temp      constant  u32   scalar
//! temp      nan       pred
//! kind      scalar
//! target    gfx9
//! see       round half to even by adding 0x7FFF and the lowest bit that stays; NaN is 0x7FFF, as PTX's cvt makes it
s_movk_i32 ${constant}, 0x7fff
v_bfe_u32 ${even}, ${low}, 16, 1
v_add3_u32 ${even}, ${low}, ${even}, ${constant}
v_bfe_u32 ${other}, ${high}, 16, 1
v_add3_u32 ${other}, ${high}, ${other}, ${constant}
s_brev_b32 ${constant}, -2
v_cmp_u_f32 ${nan}, ${low}, ${low}
v_mov_b32 ${packed}, ${constant}
v_cndmask_b32 ${even}, ${even}, ${packed}, ${nan}
v_cmp_u_f32 ${nan}, ${high}, ${high}
v_cndmask_b32 ${other}, ${other}, ${packed}, ${nan}
s_mov_b32 ${constant}, 0x07060302
v_perm_b32 ${packed}, ${other}, ${even}, ${constant}

//! fragment  pack_f16
//! about     Round two f32 to f16, nearest even, and pack them; `low` goes to the lower half (the lower address).
//! in        low     f32
//! in        high    f32
//! out       packed  b32
//! temp      second  b32
//! temp      select  u32  scalar
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_CVT_F16_F32, V_PERM_B32
v_cvt_f16_f32 ${packed}, ${low}
v_cvt_f16_f32 ${second}, ${high}
s_mov_b32 ${select}, 0x05040100
v_perm_b32 ${packed}, ${second}, ${packed}, ${select}

//! fragment  unpack
//! about     Split a packed pair of 16-bit values.
//! in        packed  b32
//! out       low     b16
//! out       high    b16
//! kind      scalar
//! target    gfx9
//! see       the upper half of a register that holds 16 bits says nothing
v_mov_b32 ${low}, ${packed}
v_lshrrev_b32 ${high}, 16, ${packed}

//! fragment  widen_bf16
//! about     bf16 to f32, exact.
//! in        narrow  b16
//! out       wide    f32
//! kind      scalar
//! target    gfx9
//! see       a bf16 is the upper half of an f32
v_lshlrev_b32 ${wide}, 16, ${narrow}

//! fragment  widen_f16
//! about     f16 to f32, exact.
//! in        narrow  b16
//! out       wide    f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_CVT_F32_F16
v_cvt_f32_f16 ${wide}, ${narrow}

//! fragment  narrow_u16
//! about     The lower 16 bits.
//! in        wide    u32
//! out       narrow  b16
//! kind      scalar
//! uniform
//! target    gfx9
//! see       the upper half of a register that holds 16 bits says nothing
v_mov_b32 ${narrow}, ${wide}

//! fragment  low_word
//! about     The lower 32 bits.
//! in        wide    u64
//! out       word    u32
//! kind      scalar
//! uniform
//! target    gfx9
//! see       a 64-bit value is two registers, the lower first
v_mov_b32 ${word}, ${wide[0]}

//! fragment  widen_s8x4
//! about     Four s8 of a word to f32, exact; `first` is the lowest byte.
//! in        packed  b32
//! out       first   f32
//! out       second  f32
//! out       third   f32
//! out       fourth  f32
//! kind      scalar
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, V_CVT_F32_I32, SDWA
v_cvt_f32_i32_sdwa ${first}, sext(${packed}) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0
v_cvt_f32_i32_sdwa ${second}, sext(${packed}) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1
v_cvt_f32_i32_sdwa ${third}, sext(${packed}) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_2
v_cvt_f32_i32_sdwa ${fourth}, sext(${packed}) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3

//! fragment  interleave
//! about     From two rows of two 16-bit values, the two columns: the pairs of lower and of upper halves.
//! in        first   b32
//! in        second  b32
//! out       low     b32
//! out       high    b32
//! temp      select  u32  scalar
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_PERM_B32: bytes 0 to 3 of the second source, 4 to 7 of the first
s_mov_b32 ${select}, 0x05040100
v_perm_b32 ${low}, ${second}, ${first}, ${select}
s_mov_b32 ${select}, 0x07060302
v_perm_b32 ${high}, ${second}, ${first}, ${select}

//! fragment  join_bytes
//! about     Two pairs of bytes as one word; `first` is the lower.
//! in        first   b16
//! in        second  b16
//! out       word    b32
//! temp      select  u32  scalar
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_PERM_B32: bytes 0 to 3 of the second source, 4 to 7 of the first
s_mov_b32 ${select}, 0x05040100
v_perm_b32 ${word}, ${second}, ${first}, ${select}

//! fragment  float_u32
//! about     A whole number as f32, rounded to the nearest, half to even.
//! in        whole   u32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_CVT_F32_U32
v_cvt_f32_u32 ${result}, ${whole}
