// Conversions that gfx950 has instructions for: bf16 pairs, and 8-bit floats as OCP defines them (gfx942 has FNUZ ones).

//! fragment  pack_bf16
//! about     Round two f32 to bf16, nearest even, and pack them; `low` goes to the lower half (the lower address).
//! in        low       f32
//! in        high      f32
//! out       packed    b32
//! kind      scalar
//! target    gfx950
//! see       CDNA4 ISA, V_CVT_PK_BF16_F32
v_cvt_pk_bf16_f32 ${packed}, ${low}, ${high}

//! fragment  pack_e4m3
//! about     Round two f32 to e4m3, nearest even, what is too large to the largest number, and pack them; `low` goes to the lower byte.
//! in        low      f32
//! in        high     f32
//! out       packed   b16
//! temp      first    f32
//! temp      second   f32
//! temp      largest  f32   scalar
//! temp      nan      pred
//! kind      scalar
//! target    gfx950
//! see       CDNA4 ISA, V_CVT_PK_FP8_F32: what is too large would be NaN; V_MED3_F32 of NaN is a number, so NaN is put back
s_mov_b32 ${largest}, 0x43e00000
v_med3_f32 ${first}, ${low}, ${largest}, -${largest}
v_cmp_u_f32 ${nan}, ${low}, ${low}
v_cndmask_b32 ${first}, ${first}, ${low}, ${nan}
v_med3_f32 ${second}, ${high}, ${largest}, -${largest}
v_cmp_u_f32 ${nan}, ${high}, ${high}
v_cndmask_b32 ${second}, ${second}, ${high}, ${nan}
v_mov_b32 ${packed}, 0
v_cvt_pk_fp8_f32 ${packed}, ${first}, ${second}

//! fragment  pack_e5m2
//! about     Round two f32 to e5m2, nearest even, what is too large to the largest number, and pack them; `low` goes to the lower byte.
//! in        low      f32
//! in        high     f32
//! out       packed   b16
//! temp      first    f32
//! temp      second   f32
//! temp      largest  f32   scalar
//! temp      nan      pred
//! kind      scalar
//! target    gfx950
//! see       CDNA4 ISA, V_CVT_PK_BF8_F32: what is too large would be infinite; V_MED3_F32 of NaN is a number, so NaN is put back
s_mov_b32 ${largest}, 0x47600000
v_med3_f32 ${first}, ${low}, ${largest}, -${largest}
v_cmp_u_f32 ${nan}, ${low}, ${low}
v_cndmask_b32 ${first}, ${first}, ${low}, ${nan}
v_med3_f32 ${second}, ${high}, ${largest}, -${largest}
v_cmp_u_f32 ${nan}, ${high}, ${high}
v_cndmask_b32 ${second}, ${second}, ${high}, ${nan}
v_mov_b32 ${packed}, 0
v_cvt_pk_bf8_f32 ${packed}, ${first}, ${second}

//! fragment  widen_fp8x4
//! about     Four 8-bit floats to f16, exact: the first two and the last two.
//! in        packed  b32
//! out       low     b32
//! out       high    b32
//! imm       type    e4m3=fp8|e5m2=bf8
//! temp      one     f32
//! kind      scalar
//! target    gfx950
//! see       CDNA4 ISA, V_CVT_SCALEF32_PK_F16_FP8: times a scale, here 1
v_mov_b32 ${one}, 1.0
v_cvt_scalef32_pk_f16_${type} ${low}, ${packed}, ${one}
v_cvt_scalef32_pk_f16_${type} ${high}, ${packed}, ${one} op_sel:[1,0,0]
