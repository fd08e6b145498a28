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
