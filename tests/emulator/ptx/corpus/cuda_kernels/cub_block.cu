// targets: sm_80 sm_90a
// CUB's block collectives: load, scan, radix sort of pairs, run lengths, histogram, reduction and store.
#include <cub/cub.cuh>
constexpr int THREADS = 128, ITEMS = 4;
using Load = cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
using Store = cub::BlockStore<int, THREADS, ITEMS, cub::BLOCK_STORE_TRANSPOSE>;
using Scan = cub::BlockScan<int, THREADS>;
using Sort = cub::BlockRadixSort<unsigned, THREADS, ITEMS, int, 5>;
using Reduce = cub::BlockReduce<long long, THREADS, cub::BLOCK_REDUCE_RAKING>;
using Histogram = cub::BlockHistogram<unsigned char, THREADS, ITEMS, 16>;
using Heads = cub::BlockDiscontinuity<int, THREADS>;
using WarpSort = cub::WarpMergeSort<int, 2, 32>;

struct Less { __device__ bool operator()(int a, int b) const { return a < b; } };

extern "C" __global__ void cub_block(const int* x, int* scanned, unsigned* keys, int* places, unsigned* bins,
                                     int* heads, int* sorted, long long* total, int n) {
    __shared__ union {
        Load::TempStorage load; Store::TempStorage store; Scan::TempStorage scan; Sort::TempStorage sort;
        Reduce::TempStorage reduce; Histogram::TempStorage histogram; Heads::TempStorage heads;
        WarpSort::TempStorage warp[THREADS / 32];
    } temp;
    __shared__ unsigned counts[16];
    int v[ITEMS], sums[ITEMS], place[ITEMS], flags[ITEMS];
    unsigned key[ITEMS];
    unsigned char low[ITEMS];
    Load(temp.load).Load(x, v, n, 7);
    __syncthreads();
    int all;
    Scan(temp.scan).ExclusiveSum(v, sums, all);
    __syncthreads();
    Store(temp.store).Store(scanned, sums, n);
    __syncthreads();
    for (int i = 0; i < ITEMS; i++) key[i] = v[i], place[i] = threadIdx.x * ITEMS + i, low[i] = v[i] & 15;
    Sort(temp.sort).SortDescendingBlockedToStriped(key, place, 0, 12);
    __syncthreads();
    cub::StoreDirectStriped<THREADS>(threadIdx.x, keys, key);
    cub::StoreDirectStriped<THREADS>(threadIdx.x, places, place);
    Histogram(temp.histogram).Histogram(low, counts);
    __syncthreads();
    if (threadIdx.x < 16) bins[threadIdx.x] = counts[threadIdx.x];
    for (int i = 0; i < ITEMS; i++) v[i] >>= 8;
    Heads(temp.heads).FlagHeads(flags, v, cuda::std::not_equal_to<>());
    __syncthreads();
    for (int i = 0; i < ITEMS; i++) heads[threadIdx.x * ITEMS + i] = flags[i];
    int two[2] = {v[0], v[3]};
    WarpSort(temp.warp[threadIdx.x / 32]).Sort(two, Less());
    sorted[threadIdx.x * 2] = two[0], sorted[threadIdx.x * 2 + 1] = two[1];
    __syncthreads();
    long long sum = Reduce(temp.reduce).Sum((long long)all << 32 | threadIdx.x);
    if (threadIdx.x == 0) *total = sum;
}
