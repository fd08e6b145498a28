// Time stamps of a kernel's own work, for `tilekit trace`.

//! fragment  record
//! about     Write 32 bytes if `active`: begin and end in ns, then what was worked on and where.
//! in        address  gmem
//! in        begin    u64
//! in        end      u64
//! in        row      u32
//! in        column   u32
//! in        sm       u32
//! in        turn     u32
//! in        active   pred
//! temp      words    b32[4]
//! temp      lanes    pred
//! kind      control
//! target    gfx9
//! see       CDNA4 ISA, GLOBAL_STORE_DWORDX2, GLOBAL_STORE_DWORDX4
v_mov_b32 ${words[0]}, ${row}
v_mov_b32 ${words[1]}, ${column}
v_mov_b32 ${words[2]}, ${sm}
v_mov_b32 ${words[3]}, ${turn}
s_and_saveexec_b64 ${lanes}, ${active}
global_store_dwordx2 ${address}, ${begin}, off
global_store_dwordx2 ${address}, ${end}, off offset:8
global_store_dwordx4 ${address}, ${words}, off offset:16
s_mov_b64 exec, ${lanes}
