// Loads from global memory to LDS, which pass no registers. They complete in groups.

//! fragment  load_b32
//! about     Start a load of 4 bytes a lane to LDS: lane i's go to `lds` + `offset` + 4 i. They come from `place` + `offset` bytes behind the buffer's begin.
//! in        buffer  b32[4]  scalar
//! in        place   u32
//! in        lds     smem    scalar
//! imm       offset  0..4095
//! kind      load
//! aligned
//! target    gfx9
//! needs     loads_to_lds
//! see       CDNA4 ISA, BUFFER_LOAD_DWORD, LDS: M0 holds the wave's address there, and `offset` counts on both sides
s_mov_b32 m0, ${lds}
buffer_load_dword ${place}, ${buffer}, 0 offen offset:${offset} lds

//! fragment  load_b32_along
//! about     Start a load of 4 bytes a lane to LDS: lane i's go to `lds` + `behind` + 4 i. They come from `place` + `along` bytes behind the buffer's begin; 0 comes where `outside` has all bits but the lowest four.
//! in        buffer   b32[4]  scalar
//! in        place    u32
//! in        outside  u32
//! in        along    u32     scalar
//! in        lds      smem    scalar
//! imm       behind   0..1048575
//! temp      where    u32
//! kind      load
//! aligned
//! target    gfx9
//! needs     loads_to_lds
//! see       CDNA4 ISA, BUFFER_LOAD_DWORD, LDS: M0 holds the wave's address there; what lies behind the buffer's end, `along` taken off, is 0
s_add_u32 m0, ${lds}, ${behind}
v_or_b32 ${where}, ${place}, ${outside}
buffer_load_dword ${where}, ${buffer}, ${along} offen lds

//! fragment  commit
//! about     End a group of loads to LDS.
//! kind      load
//! target    gfx9
//! see       as cp.async.commit_group: `wait` counts groups, and the writer the loads in them
commit_group

//! fragment  wait
//! about     Wait until all but the youngest `pending` groups of this wave are complete. Other waves see them behind a barrier.
//! imm       pending  0..15
//! kind      wait
//! target    gfx9
//! see       CDNA4 ISA, S_WAITCNT; the count of vmcnt is worked out
wait_group ${pending}
