// A counter in global memory that lets CTAs pass one after the other.

//! fragment  wait
//! about     Wait until the counter is `turn`; what those before have written is then visible to this thread.
//! in        address  gmem
//! in        turn     u32
//! temp      now      u32
//! kind      memory
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942
again:
    s_sleep 1
    global_load_dword ${now}, ${address}, off sc1
    v_cmp_ne_u32 vcc, ${now}, ${turn}
    s_cbranch_vccnz again
buffer_inv sc1

//! fragment  release
//! about     Set the counter; what this thread knows to be written is visible to the threads that wait for it.
//! in        address  gmem
//! in        turn     u32
//! kind      store
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942
buffer_wbl2 sc1
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword ${address}, ${turn}, off sc1
