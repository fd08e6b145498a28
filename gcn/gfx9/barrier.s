// Barriers among the threads of a CTA. There is one, of all of them, and it orders no memory by itself.

//! fragment  sync_cta
//! about     Wait for all threads of the CTA; what they wrote before can be seen.
//! kind      control
//! aligned
//! target    gfx9
//! see       CDNA4 ISA, S_BARRIER, S_WAITCNT
s_waitcnt vmcnt(0) lgkmcnt(0)
s_barrier

//! fragment  sync_cta_shared
//! about     Wait for all threads of the CTA; what they wrote to LDS before can be seen, and loads to LDS that were waited for.
//! kind      control
//! aligned
//! target    gfx9
//! see       CDNA4 ISA, S_BARRIER, S_WAITCNT
s_waitcnt lgkmcnt(0)
s_barrier

//! fragment  meet
//! about     Wait for all threads of the CTA, and for no memory.
//! kind      control
//! aligned
//! target    gfx9
//! see       CDNA4 ISA, S_BARRIER
s_barrier

//! fragment  warp_sync
//! about     Order the memory accesses of a wave's lanes, which run together.
//! kind      control
//! target    gfx9
//! see       CDNA4 ISA, S_WAITCNT
s_waitcnt vmcnt(0) lgkmcnt(0)

//! fragment  warp_sync_shared
//! about     Order the accesses of LDS by a wave's lanes, which run together; loads to LDS are waited for by themselves.
//! kind      control
//! target    gfx9
//! see       CDNA4 ISA, S_WAITCNT
s_waitcnt lgkmcnt(0)
