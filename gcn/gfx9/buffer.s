// Global memory through a descriptor that bounds it. The descriptor, four scalars, is one for the wave.

//! fragment  descriptor
//! about     Describe `bytes` bytes of global memory: what is loaded from behind them is 0, and nothing is stored there.
//! in        base    gmem    scalar
//! in        bytes   u32     scalar
//! out       buffer  b32[4]  scalar
//! kind      scalar
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, Buffer Resource Descriptor: raw (no stride), a data format that is not 0
s_mov_b32 ${buffer[0]}, ${base[0]}
s_and_b32 ${buffer[1]}, ${base[1]}, 0xffff
s_mov_b32 ${buffer[2]}, ${bytes}
s_mov_b32 ${buffer[3]}, 0x00020000

//! fragment  advance
//! about     Move a descriptor's begin by `bytes`; its end stays.
//! inout     buffer  b32[4]  scalar
//! in        bytes   u32     scalar
//! temp      taken   u32     scalar
//! kind      scalar
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, Buffer Resource Descriptor
s_add_u32 ${buffer[0]}, ${buffer[0]}, ${bytes}
s_addc_u32 ${buffer[1]}, ${buffer[1]}, 0
s_min_u32 ${taken}, ${bytes}, ${buffer[2]}
s_sub_u32 ${buffer[2]}, ${buffer[2]}, ${taken}

//! fragment  load_b8
//! about     Load a byte from `place` bytes behind a buffer's begin, and a constant `offset`; the other bits of `value` are 0.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! out       value   u32
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_UBYTE
buffer_load_ubyte ${value}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  load_b16
//! about     Load 2 bytes from `place` bytes behind a buffer's begin, and a constant `offset`; the upper half of `value` is 0.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! out       value   u32
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_USHORT
buffer_load_ushort ${value}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  load_b32
//! about     Load 4 bytes from `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! out       value   b32
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_DWORD
buffer_load_dword ${value}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  load_b32x2
//! about     Load 8 bytes from `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! out       values  b32[2]
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX2
buffer_load_dwordx2 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  load_b32x3
//! about     Load 12 bytes from `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! out       values  b32[3]
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX3
buffer_load_dwordx3 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  load_b32x4
//! about     Load 16 bytes from `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! out       values  b32[4]
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX4
buffer_load_dwordx4 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  refill_b32x4
//! about     Load 16 bytes from `place` bytes behind a buffer's begin, and a constant `offset`, into registers that are there.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! inout     values  b32[4]
//! imm       offset  0..4095
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_LOAD_DWORDX4
buffer_load_dwordx4 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  store_b32
//! about     Store 4 bytes to `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        value   b32
//! imm       offset  0..4095
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_STORE_DWORD
buffer_store_dword ${value}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  store_b32x2
//! about     Store 8 bytes to `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        values  b32[2]
//! imm       offset  0..4095
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_STORE_DWORDX2
buffer_store_dwordx2 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  store_b32x3
//! about     Store 12 bytes to `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        values  b32[3]
//! imm       offset  0..4095
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_STORE_DWORDX3
buffer_store_dwordx3 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}

//! fragment  store_b32x4
//! about     Store 16 bytes to `place` bytes behind a buffer's begin, and a constant `offset`.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        values  b32[4]
//! imm       offset  0..4095
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, BUFFER_STORE_DWORDX4
buffer_store_dwordx4 ${values}, ${place}, ${buffer}, 0 offen offset:${offset}
