// targets: sm_100a
// A warp for TMA, one for tcgen05.mma and four that read tensor memory, by inline PTX.
#include <cuda.h>
#include <cuda_fp16.h>
#include <cstdint>
constexpr int BM = 128, BN = 64, BK = 64, ST = 3;
using u32 = uint32_t; using u64 = uint64_t;
__device__ u32 sm(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sm(b)), "r"(n)); }
__device__ void expect(u64* b, u32 n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sm(b)), "r"(n) : "memory"); }
__device__ void wait(u64* b, int ph) { asm volatile("{\n.reg .pred P;\nL:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@!P bra L;\n}" ::"r"(sm(b)), "r"(ph) : "memory"); }
__device__ void load(void* d, const CUtensorMap* m, u64* b, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(sm(d)), "l"(m), "r"(sm(b)), "r"(x), "r"(y) : "memory"); }
__device__ u64 desc(const void* p) { u64 a = sm(p); return (a >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 46 | 2ull << 61; }
struct Shared { alignas(1024) __half a[ST][BM * BK], b[ST][BN * BK]; u64 full[ST], empty[ST], done; u32 tmem; };
extern "C" __global__ void __launch_bounds__(192) tcgen05_gemm(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, float* c, int N, int K) {
    extern __shared__ uint8_t raw[];
    Shared& s = *(Shared*)((uintptr_t)raw + 1023 & ~(uintptr_t)1023);
    int w = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) { for (int i = 0; i < ST; i++) init(s.full + i, 1), init(s.empty + i, 1); init(&s.done, 1); asm volatile("fence.mbarrier_init.release.cluster;"); }
    if (w == 4) { asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(sm(&s.tmem)) : "memory"); asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"); }
    asm volatile("tcgen05.fence::before_thread_sync;");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;");
    u32 tmem = s.tmem;
    if (w == 5 && lane == 0) {
        for (int i = 0; i < K / BK; i++) {
            int q = i % ST;
            wait(s.empty + q, (i / ST & 1) ^ 1);
            expect(s.full + q, (BM + BN) * BK * 2);
            load(s.a[q], &ma, s.full + q, i * BK, blockIdx.y * BM);
            load(s.b[q], &mb, s.full + q, i * BK, blockIdx.x * BN);
        }
    } else if (w == 4) {
        u32 elected; asm volatile("{\n.reg .pred P;\nelect.sync _|P, 0xffffffff;\nselp.u32 %0, 1, 0, P;\n}" : "=r"(elected));
        if (elected) {
            u32 idesc = 1 << 4 | (BN / 8) << 17 | (BM / 16) << 24;
            for (int i = 0; i < K / BK; i++) {
                int q = i % ST;
                wait(s.full + q, i / ST & 1);
                asm volatile("tcgen05.fence::after_thread_sync;");
                for (int k = 0; k < 4; k++)
                    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::"r"(tmem), "l"(desc(s.a[q]) + k * 2), "l"(desc(s.b[q]) + k * 2), "r"(idesc), "r"(i | k) : "memory");
                asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(sm(s.empty + q)) : "memory");
            }
            asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(sm(&s.done)) : "memory");
        }
        __syncwarp();
    }
    if (w < 4) {
        wait(&s.done, 0);
        asm volatile("tcgen05.fence::after_thread_sync;");
        float* row = c + (size_t)(blockIdx.y * BM + w * 32 + lane) * N + blockIdx.x * BN;
        for (int j = 0; j < BN; j += 16) {
            u32 r[16];
            asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, [%16];\ntcgen05.wait::ld.sync.aligned;"
                : "=r"(r[0]),"=r"(r[1]),"=r"(r[2]),"=r"(r[3]),"=r"(r[4]),"=r"(r[5]),"=r"(r[6]),"=r"(r[7]),"=r"(r[8]),"=r"(r[9]),"=r"(r[10]),"=r"(r[11]),"=r"(r[12]),"=r"(r[13]),"=r"(r[14]),"=r"(r[15]) : "r"(tmem + (w << 21) + j) : "memory");
            for (int i = 0; i < 16; i++) row[j + i] = __uint_as_float(r[i]);
        }
        asm volatile("tcgen05.fence::before_thread_sync;");
    }
    __syncthreads();
    if (w == 4) { asm volatile("tcgen05.fence::after_thread_sync;"); asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(tmem)); }
}
