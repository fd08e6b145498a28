// Matrix instructions of a wave that gfx942 brought: 8-bit floats and integers, and f32 of less precision.

//! fragment  f32_16x16x32_fp8
//! about     sums += A B: a wave's 16 x 16 tile, 32 deep, of 8-bit floats, of the chip's own formats (FNUZ on gfx942, OCP on gfx950).
//! inout     sums    f32[4]  accumulator
//! in        a       b32[2]
//! in        b       b32[2]
//! imm       a_type  fp8|bf8
//! imm       b_type  fp8|bf8
//! kind      mma
//! aligned
//! target    gfx942
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k 8 (lane / 16) + byte
v_mfma_f32_16x16x32_${a_type}_${b_type} ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_32x32x16_fp8
//! about     sums += A B: a wave's 32 x 32 tile, 16 deep, of 8-bit floats, of the chip's own formats (FNUZ on gfx942, OCP on gfx950).
//! inout     sums    f32[16] accumulator
//! in        a       b32[2]
//! in        b       b32[2]
//! imm       a_type  fp8|bf8
//! imm       b_type  fp8|bf8
//! kind      mma
//! aligned
//! target    gfx942
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k 8 (lane / 32) + byte
v_mfma_f32_32x32x16_${a_type}_${b_type} ${sums}, ${a}, ${b}, ${sums}

//! fragment  s32_16x16x32
//! about     sums += A B: a wave's 16 x 16 tile, 32 deep, of s8.
//! inout     sums  s32[4]  accumulator
//! in        a     b32[2]
//! in        b     b32[2]
//! kind      mma
//! aligned
//! target    gfx942
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k 8 (lane / 16) + byte
v_mfma_i32_16x16x32_i8 ${sums}, ${a}, ${b}, ${sums}

//! fragment  s32_32x32x16
//! about     sums += A B: a wave's 32 x 32 tile, 16 deep, of s8.
//! inout     sums  s32[16] accumulator
//! in        a     b32[2]
//! in        b     b32[2]
//! kind      mma
//! aligned
//! target    gfx942
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k 8 (lane / 32) + byte
v_mfma_i32_32x32x16_i8 ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_16x16x8_xf32
//! about     sums += A B: a wave's 16 x 16 tile, 8 deep, of f32 that are rounded to 10 bits of mantissa.
//! inout     sums  f32[4]  accumulator
//! in        a     f32[2]
//! in        b     f32[2]
//! kind      mma
//! aligned
//! target    gfx942
//! needs     xf32_matrix
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k 2 (lane / 16) + element
v_mfma_f32_16x16x8_xf32 ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_32x32x4_xf32
//! about     sums += A B: a wave's 32 x 32 tile, 4 deep, of f32 that are rounded to 10 bits of mantissa.
//! inout     sums  f32[16] accumulator
//! in        a     f32[2]
//! in        b     f32[2]
//! kind      mma
//! aligned
//! target    gfx942
//! needs     xf32_matrix
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k 2 (lane / 32) + element
v_mfma_f32_32x32x4_xf32 ${sums}, ${a}, ${b}, ${sums}
