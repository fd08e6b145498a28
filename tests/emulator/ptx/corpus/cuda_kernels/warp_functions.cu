// targets: sm_80 sm_90a sm_100a
// Shuffles, votes, matches and warp reductions.
extern "C" __global__ void warp_functions(const int* x, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, v = x[i], sum = v, scan = v;
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    for (int step = 1; step < 32; step <<= 1) {
        int below = __shfl_up_sync(~0u, scan, step);
        if (lane >= step) scan += below;
    }
    int quad = __shfl_sync(~0u, v, 3, 4), ahead = __shfl_down_sync(~0u, v, 1, 8);
    unsigned odd = __ballot_sync(~0u, v & 1), same = __match_any_sync(~0u, v & 7);
    int agree, all = __all_sync(~0u, v > -100), any = __any_sync(~0u, v == 0);
    __match_all_sync(~0u, blockIdx.x, &agree);
    int low = __reduce_min_sync(~0u, v), bits = __reduce_xor_sync(~0u, (unsigned)v);
    int part = 0;
    if (lane < 20) part = __popc(__activemask()) + __reduce_add_sync(0xfffffu, v);
    int* o = out + i * 10;
    o[0] = sum, o[1] = scan, o[2] = quad, o[3] = ahead, o[4] = odd, o[5] = same;
    o[6] = all + 2 * any + 4 * agree, o[7] = low, o[8] = bits, o[9] = part;
}
