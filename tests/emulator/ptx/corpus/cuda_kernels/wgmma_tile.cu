// targets: sm_90a
// One warpgroup multiplies 64 x 16 by 16 x 8 from unswizzled shared memory, both K-major.
#include <cuda_fp16.h>
#include <cstdint>
extern "C" __global__ void wgmma_tile(const __half* a, const __half* b, float* c) {
    __shared__ alignas(128) __half ta[64 * 16], tb[8 * 16];
    int t = threadIdx.x;
    // Core matrices of 8 rows of 16 bytes: the two along K lie 128 bytes apart, those along M or N 256.
    for (int i = t; i < 64 * 16; i += 128) ta[i / 128 * 128 + i % 16 / 8 * 64 + i / 16 % 8 * 8 + i % 8] = a[i];
    tb[t % 16 / 8 * 64 + t / 16 * 8 + t % 8] = b[t];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    auto descriptor = [](void* p) { return (uint64_t)(__cvta_generic_to_shared(p) >> 4) | 8ull << 16 | 16ull << 32; };
    float d[4] = {1, 1, 1, 1};
    // The fence takes the sums as operands, lest the compiler initialise them behind it.
    asm volatile("wgmma.fence.sync.aligned;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(descriptor(ta)), "l"(descriptor(tb)), "r"(1));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) :: "memory");
    int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    c[row * 8 + column] = d[0], c[row * 8 + column + 1] = d[1];
    c[(row + 8) * 8 + column] = d[2], c[(row + 8) * 8 + column + 1] = d[3];
}
