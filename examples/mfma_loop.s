// The loop of a small matmul without its kernel, for `tilekit cycles examples/mfma_loop.s`: a wave reads the factors of
// the next MFMAs from LDS while it multiplies, and loads the next but one k-block there.
.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
.text
start:
turn:
  s_waitcnt vmcnt(2) lgkmcnt(0)
  s_barrier
  v_mfma_f32_16x16x32_bf16 a[0:3], v[0:3], v[16:19], a[0:3]
  ds_read_b128 v[32:35], v64
  v_mfma_f32_16x16x32_bf16 a[4:7], v[4:7], v[16:19], a[4:7]
  ds_read_b128 v[36:39], v64 offset:1024
  v_mfma_f32_16x16x32_bf16 a[8:11], v[8:11], v[16:19], a[8:11]
  s_add_u32 m0, m0, 0x1000
  v_mfma_f32_16x16x32_bf16 a[12:15], v[12:15], v[16:19], a[12:15]
  buffer_load_dwordx4 v65, s[8:11], 0 offen lds
  s_sub_u32 s4, s4, 1
  s_cmp_lg_u32 s4, 0
  s_cbranch_scc1 turn
  s_endpgm
