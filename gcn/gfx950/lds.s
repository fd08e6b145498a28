// LDS reads that transpose.

//! fragment  read_transposed_b16
//! about     Read 4 values of 16 bits of a column: of each 16 lanes, lane i addresses 4 neighbours of row i / 4, and lane i receives column i of the 4 rows.
//! in        address  smem
//! out       values   b32[2]
//! imm       offset   0..65535
//! kind      memory
//! aligned
//! target    gfx950
//! needs     transposed_lds_reads
//! see       CDNA4 ISA, DS_READ_B64_TR_B16
ds_read_b64_tr_b16 ${values}, ${address} offset:${offset}
