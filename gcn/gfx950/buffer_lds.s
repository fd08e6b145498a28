// Wide loads from global memory to LDS.

//! fragment  load_b32x3
//! about     Start a load of 12 bytes a lane to LDS: lane i's go to `lds` + `offset` + 12 i. They come from `place` + `offset` bytes behind the buffer's begin.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        lds     smem    scalar
//! imm       offset  0..4095
//! kind      load
//! aligned
//! target    gfx950
//! needs     wide_loads_to_lds
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX3, LDS: M0 holds the wave's address there, and `offset` counts on both sides
s_mov_b32 m0, ${lds}
buffer_load_dwordx3 ${place}, ${buffer}, 0 offen offset:${offset} lds

//! fragment  load_b32x4
//! about     Start a load of 16 bytes a lane to LDS: lane i's go to `lds` + `offset` + 16 i. They come from `place` + `offset` bytes behind the buffer's begin.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        lds     smem    scalar
//! imm       offset  0..4095
//! kind      load
//! aligned
//! target    gfx950
//! needs     wide_loads_to_lds
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX4, LDS: M0 holds the wave's address there, and `offset` counts on both sides
s_mov_b32 m0, ${lds}
buffer_load_dwordx4 ${place}, ${buffer}, 0 offen offset:${offset} lds

//! fragment  load_b32x4_along
//! about     Start a load of 16 bytes a lane to LDS: lane i's go to `lds` + `behind` + 16 i. They come from `place` + `along` bytes behind the buffer's begin; 0 comes where `outside` has all bits but the lowest four.
//! in        buffer   b32[4]  scalar
//! in        place    u32
//! in        outside  u32
//! in        along    u32     scalar
//! in        lds      smem    scalar
//! imm       behind   0..1048575
//! temp      where    u32
//! kind      load
//! aligned
//! target    gfx950
//! needs     wide_loads_to_lds
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX4, LDS: M0 holds the wave's address there; what lies behind the buffer's end, `along` taken off, is 0
s_add_u32 m0, ${lds}, ${behind}
v_or_b32 ${where}, ${place}, ${outside}
buffer_load_dwordx4 ${where}, ${buffer}, ${along} offen lds
