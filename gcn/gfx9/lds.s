// LDS: reads, writes and atomics of a lane.

//! fragment  read_b32
//! about     Read 4 bytes, `offset` bytes behind an address.
//! in        address  smem
//! out       value    b32
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B32
ds_read_b32 ${value}, ${address} offset:${offset}

//! fragment  read_b32x2
//! about     Read 8 bytes, `offset` bytes behind an address.
//! in        address  smem
//! out       values   b32[2]
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B64
ds_read_b64 ${values}, ${address} offset:${offset}

//! fragment  read_b32x3
//! about     Read 12 bytes, `offset` bytes behind an address.
//! in        address  smem
//! out       values   b32[3]
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B96
ds_read_b96 ${values}, ${address} offset:${offset}

//! fragment  read_b32x4
//! about     Read 16 bytes, `offset` bytes behind an address.
//! in        address  smem
//! out       values   b32[4]
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B128
ds_read_b128 ${values}, ${address} offset:${offset}

//! fragment  refill_b32x4
//! about     Read 16 bytes, `offset` bytes behind an address, into registers that are there: what a loop reads ahead of its next turn.
//! in        address  smem
//! inout     values   b32[4]
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B128
ds_read_b128 ${values}, ${address} offset:${offset}

//! fragment  refill_u8
//! about     Read a byte, `offset` bytes behind an address, into a register that is there, zeros above it.
//! in        address  smem
//! inout     value    b32
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_U8
ds_read_u8 ${value}, ${address} offset:${offset}

//! fragment  write_b32
//! about     Write 4 bytes, `offset` bytes behind an address.
//! in        address  smem
//! in        value    b32
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B32
ds_write_b32 ${address}, ${value} offset:${offset}

//! fragment  write_b32x2
//! about     Write 8 bytes, `offset` bytes behind an address.
//! in        address  smem
//! in        values   b32[2]
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B64
ds_write_b64 ${address}, ${values} offset:${offset}

//! fragment  write_b32x3
//! about     Write 12 bytes, `offset` bytes behind an address.
//! in        address  smem
//! in        values   b32[3]
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B96
ds_write_b96 ${address}, ${values} offset:${offset}

//! fragment  write_b32x4
//! about     Write 16 bytes, `offset` bytes behind an address.
//! in        address  smem
//! in        values   b32[4]
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B128
ds_write_b128 ${address}, ${values} offset:${offset}

//! fragment  add_u32
//! about     Add to a u32.
//! in        address  smem
//! in        value    u32
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_ADD_U32
ds_add_u32 ${address}, ${value} offset:${offset}

//! fragment  fetch_add_u32
//! about     Add to a u32 and return what it was.
//! in        address  smem
//! in        value    u32
//! out       before   u32
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_ADD_RTN_U32
ds_add_rtn_u32 ${before}, ${address}, ${value} offset:${offset}

//! fragment  maximum_u32
//! about     The larger of what is there and `value`.
//! in        address  smem
//! in        value    u32
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_MAX_U32
ds_max_u32 ${address}, ${value} offset:${offset}
