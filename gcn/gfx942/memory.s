// Loads, stores and atomics that all of the device see in order.

//! fragment  load_acquire_gpu
//! about     Load a u32 and order it before the thread's later accesses, as all of the device see them.
//! in        address  gmem
//! out       value    u32
//! kind      memory
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942
global_load_dword ${value}, ${address}, off sc1
s_waitcnt vmcnt(0)
buffer_inv sc1

//! fragment  store_release_gpu
//! about     Store a u32 after the thread's earlier accesses, as all of the device see them.
//! in        address  gmem
//! in        value    u32
//! kind      store
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942
buffer_wbl2 sc1
s_waitcnt vmcnt(0) lgkmcnt(0)
global_store_dword ${address}, ${value}, off sc1

//! fragment  add_release_gpu
//! about     Add to a u32 after the thread's earlier accesses, as all of the device see them.
//! in        address  gmem
//! in        value    u32
//! kind      store
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942
buffer_wbl2 sc1
s_waitcnt vmcnt(0) lgkmcnt(0)
global_atomic_add ${address}, ${value}, off

//! fragment  count_gpu
//! about     Add to a u32 and return what it was, after the thread's earlier accesses as all of the device see them.
//! in        address  gmem
//! in        value    u32
//! out       before   u32
//! kind      memory
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942 (sc0: the value before is returned)
buffer_wbl2 sc1
s_waitcnt vmcnt(0) lgkmcnt(0)
global_atomic_add ${before}, ${address}, ${value}, off sc0
s_waitcnt vmcnt(0)

//! fragment  acquire_gpu
//! about     Have later accesses come after those that others had made before they counted what this thread has read.
//! kind      memory
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942
buffer_inv sc1

//! fragment  load_coherent_f32
//! about     Load of one f32 if `valid`, else 0; this kernel may have written it.
//! in        address  gmem
//! in        valid    pred
//! out       value    f32
//! temp      lanes    pred
//! kind      memory
//! target    gfx942
//! see       LLVM, User Guide for AMDGPU, Memory Model GFX942: sc1 passes by caches that other compute units do not see
v_mov_b32 ${value}, 0
s_and_saveexec_b64 ${lanes}, ${valid}
global_load_dword ${value}, ${address}, off sc1
s_mov_b64 exec, ${lanes}
