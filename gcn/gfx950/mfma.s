// Matrix instructions of a wave that gfx950 brought: twice as deep, and narrow floats with block scales.

//! fragment  f32_16x16x32
//! about     sums += A B: a wave's 16 x 16 tile, 32 deep, of bf16 or f16.
//! inout     sums  f32[4]  accumulator
//! in        a     b32[4]
//! in        b     b32[4]
//! imm       type  bf16|f16
//! kind      mma
//! aligned
//! target    gfx950
//! needs     deep_matrix
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k 8 (lane / 16) + element
v_mfma_f32_16x16x32_${type} ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_32x32x16
//! about     sums += A B: a wave's 32 x 32 tile, 16 deep, of bf16 or f16.
//! inout     sums  f32[16] accumulator
//! in        a     b32[4]
//! in        b     b32[4]
//! imm       type  bf16|f16
//! kind      mma
//! aligned
//! target    gfx950
//! needs     deep_matrix
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k 8 (lane / 32) + element
v_mfma_f32_32x32x16_${type} ${sums}, ${a}, ${b}, ${sums}

//! fragment  s32_16x16x64
//! about     sums += A B: a wave's 16 x 16 tile, 64 deep, of s8.
//! inout     sums  s32[4]  accumulator
//! in        a     b32[4]
//! in        b     b32[4]
//! kind      mma
//! aligned
//! target    gfx950
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k 16 (lane / 16) + byte
v_mfma_i32_16x16x64_i8 ${sums}, ${a}, ${b}, ${sums}

//! fragment  s32_32x32x32
//! about     sums += A B: a wave's 32 x 32 tile, 32 deep, of s8.
//! inout     sums  s32[16] accumulator
//! in        a     b32[4]
//! in        b     b32[4]
//! kind      mma
//! aligned
//! target    gfx950
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k 16 (lane / 32) + byte
v_mfma_i32_32x32x32_i8 ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_16x16x128
//! about     sums += A B: a wave's 16 x 16 tile, 128 deep, of floats of 8, 6 or 4 bits: 0 e4m3, 1 e5m2 (8 registers), 2 e2m3, 3 e3m2 (6), 4 e2m1 (4).
//! inout     sums      f32[4]  accumulator
//! in        a         b32[*]
//! in        b         b32[*]
//! imm       a_format  0..4
//! imm       b_format  0..4
//! kind      mma
//! aligned
//! target    gfx950
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; 8 bits: k 16 (lane / 16) + byte in the lower half of the registers, 64 on in the upper; narrower: 32 (lane / 16) + element
v_mfma_f32_16x16x128_f8f6f4 ${sums}, ${a}, ${b}, ${sums} cbsz:${a_format} blgp:${b_format}

//! fragment  f32_16x16x128_scaled
//! about     sums += A B: a wave's 16 x 16 tile, 128 deep, of floats of 8, 6 or 4 bits: 0 e4m3, 1 e5m2 (8 registers), 2 e2m3, 3 e3m2 (6), 4 e2m1 (4), each 32 of a row or column times 2^(scale - 127). Byte `low` + 2 `high` of a lane's scales is that of its row or column, lane % 16, and of the 32 from k 32 (lane / 16) on.
//! inout     sums      f32[4]  accumulator
//! in        a         b32[*]
//! in        b         b32[*]
//! in        a_scale   b32
//! in        b_scale   b32
//! imm       a_format  0..4
//! imm       b_format  0..4
//! imm       a_low     0..1
//! imm       a_high    0..1
//! imm       b_low     0..1
//! imm       b_high    0..1
//! kind      mma
//! aligned
//! target    gfx950
//! needs     scaled_matrix
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; V_MFMA_SCALE; 8 bits: k 16 (lane / 16) + byte in the lower half of the registers, 64 on in the upper; narrower: 32 (lane / 16) + element
v_mfma_scale_f32_16x16x128_f8f6f4 ${sums}, ${a}, ${b}, ${sums}, ${a_scale}, ${b_scale} op_sel:[${a_low},${b_low},0] op_sel_hi:[${a_high},${b_high},0] cbsz:${a_format} blgp:${b_format}

//! fragment  f32_32x32x64
//! about     sums += A B: a wave's 32 x 32 tile, 64 deep, of floats of 8, 6 or 4 bits: 0 e4m3, 1 e5m2 (8 registers), 2 e2m3, 3 e3m2 (6), 4 e2m1 (4).
//! inout     sums      f32[16] accumulator
//! in        a         b32[*]
//! in        b         b32[*]
//! imm       a_format  0..4
//! imm       b_format  0..4
//! kind      mma
//! aligned
//! target    gfx950
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; 8 bits: k 16 (lane / 32) + byte in the lower half of the registers, 32 on in the upper; narrower: 32 (lane / 32) + element
v_mfma_f32_32x32x64_f8f6f4 ${sums}, ${a}, ${b}, ${sums} cbsz:${a_format} blgp:${b_format}

//! fragment  f32_32x32x64_scaled
//! about     sums += A B: a wave's 32 x 32 tile, 64 deep, of floats of 8, 6 or 4 bits: 0 e4m3, 1 e5m2 (8 registers), 2 e2m3, 3 e3m2 (6), 4 e2m1 (4), each 32 of a row or column times 2^(scale - 127). Byte `low` + 2 `high` of a lane's scales is that of its row or column, lane % 32, and of the 32 from k 32 (lane / 32) on.
//! inout     sums      f32[16] accumulator
//! in        a         b32[*]
//! in        b         b32[*]
//! in        a_scale   b32
//! in        b_scale   b32
//! imm       a_format  0..4
//! imm       b_format  0..4
//! imm       a_low     0..1
//! imm       a_high    0..1
//! imm       b_low     0..1
//! imm       b_high    0..1
//! kind      mma
//! aligned
//! target    gfx950
//! needs     scaled_matrix
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; V_MFMA_SCALE; 8 bits: k 16 (lane / 32) + byte in the lower half of the registers, 32 on in the upper; narrower: 32 (lane / 32) + element
v_mfma_scale_f32_32x32x64_f8f6f4 ${sums}, ${a}, ${b}, ${sums}, ${a_scale}, ${b_scale} op_sel:[${a_low},${b_low},0] op_sel_hi:[${a_high},${b_high},0] cbsz:${a_format} blgp:${b_format}
