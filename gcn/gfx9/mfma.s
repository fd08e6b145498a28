// Matrix instructions of a wave. Sums may be in accumulator registers, where waves have them.

//! fragment  f32_16x16x16
//! about     sums += A B: a wave's 16 x 16 tile, 16 deep, of bf16 or f16.
//! inout     sums  f32[4]  accumulator
//! in        a     b32[2]
//! in        b     b32[2]
//! imm       type  bf16|f16
//! kind      mma
//! aligned
//! target    gfx9
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k 4 (lane / 16) + element
v_mfma_f32_16x16x16_${type} ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_32x32x8
//! about     sums += A B: a wave's 32 x 32 tile, 8 deep, of bf16 or f16.
//! inout     sums  f32[16] accumulator
//! in        a     b32[2]
//! in        b     b32[2]
//! imm       type  bf16|f16
//! kind      mma
//! aligned
//! target    gfx9
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k 4 (lane / 32) + element
v_mfma_f32_32x32x8_${type} ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_16x16x4
//! about     sums += A B: a wave's 16 x 16 tile, 4 deep, of f32.
//! inout     sums  f32[4]  accumulator
//! in        a     f32
//! in        b     f32
//! kind      mma
//! aligned
//! target    gfx9
//! see       CDNA ISA, V_MFMA; A: row lane % 16; sums: column lane % 16, rows 4 (lane / 16) + i; k lane / 16
v_mfma_f32_16x16x4_f32 ${sums}, ${a}, ${b}, ${sums}

//! fragment  f32_32x32x2
//! about     sums += A B: a wave's 32 x 32 tile, 2 deep, of f32.
//! inout     sums  f32[16] accumulator
//! in        a     f32
//! in        b     f32
//! kind      mma
//! aligned
//! target    gfx9
//! see       CDNA ISA, V_MFMA; A: row lane % 32; sums: column lane % 32, rows 8 (i / 4) + 4 (lane / 32) + i % 4; k lane / 32
v_mfma_f32_32x32x2_f32 ${sums}, ${a}, ${b}, ${sums}
