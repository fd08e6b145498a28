// Ordinary loads and stores of the executing thread.

//! fragment  load_global_f32
//! about     Read-only load of one f32 if `valid`, else 0.
//! in        address  gmem
//! in        valid    pred
//! out       value    f32
//! temp      lanes    pred
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORD
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_dword ${value}, ${address}, off
s_mov_b64 exec, ${lanes}

//! fragment  load_global_scalar
//! about     Read-only load of one f32.
//! in        address  gmem
//! out       value    f32
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORD
global_load_dword ${value}, ${address}, off

//! fragment  load_global_b16
//! about     Read-only load of one 16-bit value if `valid`, else 0.
//! in        address  gmem
//! in        valid    pred
//! out       value    b16
//! temp      lanes    pred
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_USHORT
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_ushort ${value}, ${address}, off
s_mov_b64 exec, ${lanes}

//! fragment  store_global_f32
//! about     Store one f32 if `valid`.
//! in        address  gmem
//! in        value    f32
//! in        valid    pred
//! temp      lanes    pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORD
s_and_saveexec_b64 ${lanes}, ${valid}
global_store_dword ${address}, ${value}, off
s_mov_b64 exec, ${lanes}

//! fragment  store_global_b16
//! about     Store one 16-bit value if `valid`.
//! in        address  gmem
//! in        value    b16
//! in        valid    pred
//! temp      lanes    pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_SHORT
s_and_saveexec_b64 ${lanes}, ${valid}
global_store_short ${address}, ${value}, off
s_mov_b64 exec, ${lanes}

//! fragment  store_global_b8
//! about     Store the low byte of a 16-bit value if `valid`.
//! in        address  gmem
//! in        value    b16
//! in        valid    pred
//! temp      lanes    pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_BYTE
s_and_saveexec_b64 ${lanes}, ${valid}
global_store_byte ${address}, ${value}, off
s_mov_b64 exec, ${lanes}

//! fragment  store_shared_f32x2
//! about     Store two neighbouring f32 to shared memory (8-byte aligned).
//! in        address  smem
//! in        low      f32
//! in        high     f32
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE2_B32: offsets in words
ds_write2_b32 ${address}, ${low}, ${high} offset1:1

//! fragment  store_shared_f32
//! about     Store one f32 to shared memory.
//! in        address  smem
//! in        value    f32
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B32
ds_write_b32 ${address}, ${value}

//! fragment  store_shared_b32
//! about     Store one 32-bit value to shared memory.
//! in        address  smem
//! in        value    b32
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B32
ds_write_b32 ${address}, ${value}

//! fragment  store_shared_b16
//! about     Store one 16-bit value to shared memory.
//! in        address  smem
//! in        value    b16
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B16
ds_write_b16 ${address}, ${value}

//! fragment  load_shared_f32
//! about     Load one f32 from shared memory.
//! in        address  smem
//! out       value    f32
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B32
ds_read_b32 ${value}, ${address}

//! fragment  load_shared_f32x2
//! about     Load two neighbouring f32 from shared memory.
//! in        address  smem
//! out       low      f32
//! out       high     f32
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B32
ds_read_b32 ${low}, ${address}
ds_read_b32 ${high}, ${address} offset:4

//! fragment  load_shared_b32
//! about     Load one 32-bit value from shared memory.
//! in        address  smem
//! out       value    b32
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B32
ds_read_b32 ${value}, ${address}

//! fragment  load_shared_b32x2
//! about     Load two neighbouring 32-bit values from shared memory (8-byte aligned).
//! in        address  smem
//! out       values   b32[2]
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B64
ds_read_b64 ${values}, ${address}

//! fragment  load_shared_b32x4
//! about     Load four neighbouring 32-bit values from shared memory (16-byte aligned).
//! in        address  smem
//! out       values   b32[4]
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B128
ds_read_b128 ${values}, ${address}

//! fragment  store_shared_b32x4
//! about     Store four neighbouring 32-bit values to shared memory (16-byte aligned).
//! in        address  smem
//! in        values   b32[4]
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B128
ds_write_b128 ${address}, ${values}

//! fragment  load_global_u8
//! about     Read-only load of one byte, widened with zeros, if `valid`, else 0.
//! in        address  gmem
//! in        valid    pred
//! out       value    u32
//! temp      lanes    pred
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_UBYTE
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_ubyte ${value}, ${address}, off
s_mov_b64 exec, ${lanes}

//! fragment  load_global_u16
//! about     Read-only load of one 16-bit value, widened with zeros, if `valid`, else 0.
//! in        address  gmem
//! in        valid    pred
//! out       value    u32
//! temp      lanes    pred
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_USHORT
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_ushort ${value}, ${address}, off
s_mov_b64 exec, ${lanes}

//! fragment  load_global_u32
//! about     Read-only load of one 32-bit value, widened with zeros, if `valid`, else 0.
//! in        address  gmem
//! in        valid    pred
//! out       value    u32
//! temp      lanes    pred
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORD
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_dword ${value}, ${address}, off
s_mov_b64 exec, ${lanes}

//! fragment  load_global_u32x2
//! about     Read-only load of two neighbouring 32-bit values (8-byte aligned) if `valid`, else zeros.
//! in        address  gmem
//! in        valid    pred
//! out       low      u32
//! out       high     u32
//! temp      lanes    pred
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORD
v_mov_b32 ${low}, 0
v_mov_b32 ${high}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_dword ${low}, ${address}, off
global_load_dword ${high}, ${address}, off offset:4
s_mov_b64 exec, ${lanes}

//! fragment  load_global_f32x4
//! about     Load four neighbouring f32 (16-byte aligned), which this kernel may have written.
//! in        address  gmem
//! out       values   f32[4]
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORDX4
global_load_dwordx4 ${values}, ${address}, off

//! fragment  load_global_b32x4
//! about     Read-only load of four neighbouring 32-bit values (16-byte aligned).
//! in        address  gmem
//! out       values   b32[4]
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORDX4
global_load_dwordx4 ${values}, ${address}, off

//! fragment  store_global_f32x4
//! about     Store four neighbouring f32 (16-byte aligned).
//! in        address  gmem
//! in        values   f32[4]
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORDX4
global_store_dwordx4 ${address}, ${values}, off

//! fragment  store_global_b32
//! about     Store one 32-bit value.
//! in        address  gmem
//! in        value    u32
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORD
global_store_dword ${address}, ${value}, off

//! fragment  store_global_b32x2
//! about     Store two neighbouring 32-bit values (8-byte aligned) if `valid`.
//! in        address  gmem
//! in        values   b32[2]
//! in        valid    pred
//! temp      lanes    pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORDX2
s_and_saveexec_b64 ${lanes}, ${valid}
global_store_dwordx2 ${address}, ${values}, off
s_mov_b64 exec, ${lanes}

//! fragment  store_global_b32x4
//! about     Store four neighbouring 32-bit values (16-byte aligned) if `valid`.
//! in        address  gmem
//! in        values   b32[4]
//! in        valid    pred
//! temp      lanes    pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORDX4
s_and_saveexec_b64 ${lanes}, ${valid}
global_store_dwordx4 ${address}, ${values}, off
s_mov_b64 exec, ${lanes}

//! fragment  load_count
//! about     Load a count that a kernel before this one has written; 0 where it is negative, and unless `valid`.
//! in        address  gmem
//! in        valid    pred
//! out       value    u32
//! temp      lanes    pred
//! kind      control
//! uniform
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_LOAD_DWORD, V_MAX_I32
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_dword ${value}, ${address}, off
s_mov_b64 exec, ${lanes}
v_max_i32 ${value}, 0, ${value}

//! fragment  copy_16
//! about     Copy 16 bytes from shared to global memory if `valid`.
//! in        source  smem
//! in        target  gmem
//! in        valid   pred
//! temp      chunk   b32[4]
//! temp      lanes   pred
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B128, GLOBAL_STORE_DWORDX4
s_and_saveexec_b64 ${lanes}, ${valid}
ds_read_b128 ${chunk}, ${source}
global_store_dwordx4 ${target}, ${chunk}, off
s_mov_b64 exec, ${lanes}

//! fragment  store_shared_f32_at
//! about     Store one f32 to shared memory, `offset` bytes behind an address.
//! in        address  smem
//! in        value    f32
//! imm       offset   0..65535
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B32
ds_write_b32 ${address}, ${value} offset:${offset}

//! fragment  store_shared_f32x2_at
//! about     Store two neighbouring f32 to shared memory, `offset` bytes behind an address.
//! in        address  smem
//! in        low      f32
//! in        high     f32
//! imm       offset   0..65528
//! kind      store
//! target    gfx9
//! see       CDNA4 ISA, DS_WRITE_B32
ds_write_b32 ${address}, ${low} offset:${offset}
ds_write_b32 ${address}, ${high} offset:${offset}+4

//! fragment  load_shared_f32_at
//! about     Load one f32 from shared memory, `offset` bytes behind an address.
//! in        address  smem
//! out       value    f32
//! imm       offset   0..65535
//! kind      memory
//! target    gfx9
//! see       CDNA4 ISA, DS_READ_B32
ds_read_b32 ${value}, ${address} offset:${offset}
