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
