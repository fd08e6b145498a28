// targets: sm_90a
// Warp-specialised, persistent; cluster of 2 with B multicast; two consumer warpgroups; TMA store.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cstdint>
constexpr int BM = 128, BN = 128, BK = 64, ST = 3;
using u32 = uint32_t; using u64 = uint64_t;
__device__ u32 sm(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u64* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sm(b)), "r"(n)); }
__device__ void expect(u64* b, u32 n) { asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(sm(b)), "r"(n) : "memory"); }
__device__ void wait(u64* b, int ph) { asm volatile("{\n.reg .pred P;\nL:\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 P, [%0], %1;\n@P bra.uni D;\nbra.uni L;\nD:\n}" ::"r"(sm(b)), "r"(ph) : "memory"); }
__device__ void arrive_at(u64* b, u32 cta) { asm volatile("{\n.reg .b32 ra;\nmapa.shared::cluster.u32 ra, %0, %1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [ra];\n}" ::"r"(sm(b)), "r"(cta) : "memory"); }
__device__ void load(void* d, const CUtensorMap* m, u64* b, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(sm(d)), "l"(m), "r"(sm(b)), "r"(x), "r"(y) : "memory"); }
__device__ void load_all(void* d, const CUtensorMap* m, u64* b, int x, int y, uint16_t mask) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(sm(d)), "l"(m), "r"(sm(b)), "r"(x), "r"(y), "h"(mask) : "memory"); }
__device__ u64 desc(const void* p) { u64 a = sm(p); return (a >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62; }
template <int C> __device__ void mma(float (&d)[64], u64 a, u64 b) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
    "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
    : "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),
      "+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31]),
      "+f"(d[32]),"+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]),"+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]),
      "+f"(d[48]),"+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]),"+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63])
    : "l"(a), "l"(b), "n"(C));
}
struct Shared { alignas(1024) __nv_bfloat16 a[ST][BM * BK], b[ST][BN * BK], c[2][64 * BN]; u64 full[ST], empty[ST]; };
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) warp_specialized_gemm(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, const __grid_constant__ CUtensorMap mc, int M, int N, int K) {
    extern __shared__ uint8_t raw[];
    Shared& s = *(Shared*)((uintptr_t)raw + 1023 & ~(uintptr_t)1023);
    u32 rank; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    int wg = threadIdx.x / 128;
    if (threadIdx.x == 0) { for (int i = 0; i < ST; i++) init(s.full + i, 1), init(s.empty + i, 4); asm volatile("fence.mbarrier_init.release.cluster;"); }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    int tn = N / BN, tiles = M / (2 * BM) * tn, step = gridDim.x / 2;
    if (wg == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            int q = 0, ph = 0;
            for (int t = blockIdx.x / 2; t < tiles; t += step)
                for (int k = 0; k < K; k += BK) {
                    wait(s.empty + q, ph ^ 1);
                    expect(s.full + q, (BM + BN) * BK * 2);
                    load(s.a[q], &ma, s.full + q, k, (t / tn * 2 + rank) * BM);
                    load_all(s.b[q] + rank * BN / 2 * BK, &mb, s.full + q, k, t % tn * BN + rank * BN / 2, 3);
                    if (++q == ST) q = 0, ph ^= 1;
                }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        wg--;
        int q = 0, ph = 0, l = threadIdx.x % 128, w = l / 32, lane = l % 32;
        float d[64];
        for (int t = blockIdx.x / 2; t < tiles; t += step) {
            for (int i = 0; i < 64; i++) d[i] = 0;
            for (int k = 0; k < K; k += BK) {
                wait(s.full + q, ph);
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int kk = 0; kk < 4; kk++) mma<1>(d, desc(s.a[q] + wg * 64 * BK) + kk * 2, desc(s.b[q]) + kk * 2);
                asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
                for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
                if (l < 2) arrive_at(s.empty + q, l);
                if (++q == ST) q = 0, ph ^= 1;
            }
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(wg + 8) : "memory");
            u32 base = sm(s.c[wg]) + (w * 16 + lane % 16) * 128 + 0;
            for (int j = 0; j < 8; j++) {
                u32 p[4];
                for (int i = 0; i < 4; i++) { __nv_bfloat162 v = __floats2bfloat162_rn(d[j * 8 + i * 2], d[j * 8 + i * 2 + 1]); p[i] = *(u32*)&v; }
                int col = j * 2 + lane / 16;  // of 8 columns
                u32 at = base + col / 8 * 64 * 128 + ((col % 8 ^ lane % 8) * 16);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]) : "memory");
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(wg + 8) : "memory");
            if (l == 0) {
                for (int h = 0; h < 2; h++) asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&mc), "r"(sm(s.c[wg] + h * 64 * 64)), "r"(t % tn * BN + h * 64), "r"((t / tn * 2 + (int)rank) * BM + wg * 64) : "memory");
                asm volatile("cp.async.bulk.commit_group;");
            }
        }
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
