// targets: sm_100a
// A block sorts by 4 bits at a time; match_any ranks the keys of a warp.
extern "C" __global__ void radix_match(unsigned* keys) {
    __shared__ unsigned k[1024];
    __shared__ int hist[8][16];
    __shared__ int base[8][16];
    int t = threadIdx.x, w = t / 32, lane = t % 32;
    for (int i = t; i < 1024; i += 256) k[i] = keys[i];
    __syncthreads();
    for (int shift = 0; shift < 32; shift += 4) {
        if (t < 128) hist[t / 16][t % 16] = 0;
        __syncthreads();
        unsigned mine[4]; int rank[4];
        for (int j = 0; j < 4; j++) {
            mine[j] = k[w * 128 + j * 32 + lane];
            int d = mine[j] >> shift & 15;
            unsigned peers = __match_any_sync(~0u, d);
            int before = __popc(peers & ((1u << lane) - 1));
            int leader = __ffs(peers) - 1, old = 0;
            if (lane == leader) { old = hist[w][d]; hist[w][d] = old + __popc(peers); }
            __syncwarp();
            old = __shfl_sync(~0u, old, leader);
            rank[j] = old + before;
        }
        __syncthreads();
        if (t < 16) { int s = 0; for (int v = 0; v < 8; v++) { base[v][t] = s; s += hist[v][t]; } hist[0][t] = s; }
        __syncthreads();
        if (t < 32) { int v = t < 16 ? hist[0][t] : 0, s = v; for (int o = 1; o < 16; o *= 2) { int u = __shfl_up_sync(~0u, s, o, 16); if ((t & 15) >= o) s += u; }
            if (t < 16) for (int x = 0; x < 8; x++) base[x][t] += s - v; }
        __syncthreads();
        for (int j = 0; j < 4; j++) k[base[w][mine[j] >> shift & 15] + rank[j]] = mine[j];
        __syncthreads();
    }
    for (int i = t; i < 1024; i += 256) keys[i] = k[i];
}
