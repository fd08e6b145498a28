// Elementwise functions of an epilogue, in f32.

//! fragment  fma
//! about     a * b + c, rounded once.
//! in        a       f32
//! in        b       f32
//! in        c       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_FMA_F32
v_fma_f32 ${result}, ${a}, ${b}, ${c}

//! fragment  relu
//! about     max(x, 0), with NaN kept.
//! in        x       f32
//! out       result  f32
//! temp      nan     pred
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MAX_F32 passes over NaN, so it is put back
v_max_f32 ${result}, 0, ${x}
v_cmp_u_f32 ${nan}, ${x}, ${x}
v_cndmask_b32 ${result}, ${result}, ${x}, ${nan}

//! fragment  tanh
//! about     Hyperbolic tangent, relative error at most 2^-11.
//! in        x       f32
//! out       result  f32
//! temp      small   f32
//! temp      third   f32   scalar
//! temp      near    pred
//! kind      scalar
//! target    gfx9
//! see       1 - 2 / (1 + 2^(2 x log2 e)), where digits cancel near 0: there x - x^3 / 3; 0x4038AA3B is 2 log2(e)
v_mul_f32 ${result}, 0x4038aa3b, ${x}
v_exp_f32 ${result}, ${result}
v_add_f32 ${result}, 1.0, ${result}
v_rcp_f32 ${result}, ${result}
v_fma_f32 ${result}, ${result}, -2.0, 1.0
s_mov_b32 ${third}, 0xbeaaaaab
v_mul_f32 ${small}, ${x}, ${x}
v_mul_f32 ${small}, ${third}, ${small}
v_fma_f32 ${small}, ${small}, ${x}, ${x}
s_mov_b32 ${third}, 0x3d000000
v_cmp_lt_f32 ${near}, |${x}|, ${third}
v_cndmask_b32 ${result}, ${result}, ${small}, ${near}

//! fragment  sigmoid
//! about     1 / (1 + 2^(-x log2 e)) to a few units in the last place of f32, for f32 outputs.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_EXP_F32 and V_RCP_F32 (1 ulp each); 0xBFB8AA3B is -log2(e)
v_mul_f32 ${result}, 0xbfb8aa3b, ${x}
v_exp_f32 ${result}, ${result}
v_add_f32 ${result}, 1.0, ${result}
v_rcp_f32 ${result}, ${result}

//! fragment  maximum
//! about     The larger of two; NaN where one is.
//! in        a       f32
//! in        b       f32
//! out       result  f32
//! temp      sum     f32
//! temp      nan     pred
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MAX_F32 passes over NaN, which the sum of both keeps
v_add_f32 ${sum}, ${a}, ${b}
v_max_f32 ${result}, ${a}, ${b}
v_cmp_u_f32 ${nan}, ${a}, ${b}
v_cndmask_b32 ${result}, ${result}, ${sum}, ${nan}

//! fragment  minimum
//! about     The smaller of two; NaN where one is.
//! in        a       f32
//! in        b       f32
//! out       result  f32
//! temp      sum     f32
//! temp      nan     pred
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MIN_F32 passes over NaN, which the sum of both keeps
v_add_f32 ${sum}, ${a}, ${b}
v_min_f32 ${result}, ${a}, ${b}
v_cmp_u_f32 ${nan}, ${a}, ${b}
v_cndmask_b32 ${result}, ${result}, ${sum}, ${nan}

//! fragment  absolute
//! about     The absolute value.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_AND_B32: all bits but the sign
v_and_b32 ${result}, 0x7fffffff, ${x}

//! fragment  floor
//! about     The largest whole number that is at most x.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_FLOOR_F32
v_floor_f32 ${result}, ${x}

//! fragment  exp2
//! about     2^x to a unit in the last place.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_EXP_F32
v_exp_f32 ${result}, ${x}

//! fragment  log2
//! about     The logarithm of base 2.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_LOG_F32
v_log_f32 ${result}, ${x}

//! fragment  sqrt
//! about     The square root to a unit in the last place.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_SQRT_F32
v_sqrt_f32 ${result}, ${x}

//! fragment  rsqrt
//! about     1 over the square root to a unit in the last place.
//! in        x       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_RSQ_F32
v_rsq_f32 ${result}, ${x}

//! fragment  divide
//! about     a / b to two units in the last place.
//! in        a       f32
//! in        b       f32
//! out       result  f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_RCP_F32 (1 ulp)
v_rcp_f32 ${result}, ${b}
v_mul_f32 ${result}, ${a}, ${result}

//! fragment  add_where
//! about     Add `value` to `total` if it `counts`.
//! inout     total   f32
//! in        value   f32
//! in        counts  pred
//! temp      sum     f32
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_CNDMASK_B32
v_add_f32 ${sum}, ${total}, ${value}
v_cndmask_b32 ${total}, ${total}, ${sum}, ${counts}

//! fragment  maximum_where
//! about     Make `total` the larger of it and `value` if that `counts`; NaN where one is.
//! inout     total   f32
//! in        value   f32
//! in        counts  pred
//! temp      sum     f32
//! temp      result  f32
//! temp      nan     pred
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MAX_F32 passes over NaN, which the sum of both keeps
v_add_f32 ${sum}, ${total}, ${value}
v_max_f32 ${result}, ${total}, ${value}
v_cmp_u_f32 ${nan}, ${total}, ${value}
v_cndmask_b32 ${result}, ${result}, ${sum}, ${nan}
v_cndmask_b32 ${total}, ${total}, ${result}, ${counts}

//! fragment  minimum_where
//! about     Make `total` the smaller of it and `value` if that `counts`; NaN where one is.
//! inout     total   f32
//! in        value   f32
//! in        counts  pred
//! temp      sum     f32
//! temp      result  f32
//! temp      nan     pred
//! kind      scalar
//! target    gfx9
//! see       CDNA4 ISA, V_MIN_F32 passes over NaN, which the sum of both keeps
v_add_f32 ${sum}, ${total}, ${value}
v_min_f32 ${result}, ${total}, ${value}
v_cmp_u_f32 ${nan}, ${total}, ${value}
v_cndmask_b32 ${result}, ${result}, ${sum}, ${nan}
v_cndmask_b32 ${total}, ${total}, ${result}, ${counts}
