// targets: sm_80 sm_90a sm_100a
// cuda::atomic, latch and semaphore in shared and global memory, in every memory order and some scopes.
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>
using Latch = cuda::latch<cuda::thread_scope_block>;
using Lock = cuda::binary_semaphore<cuda::thread_scope_block>;
extern "C" __global__ void atomic_orders(const int* x, int* out, cuda::atomic<int, cuda::thread_scope_device>* flag,
                                         int* data, float* sum, unsigned short* small) {
    __shared__ cuda::atomic<int, cuda::thread_scope_block> most, tickets;
    __shared__ alignas(16) char latch_room[sizeof(Latch)], lock_room[sizeof(Lock)];
    Latch& ready = *(Latch*)latch_room;
    Lock& lock = *(Lock*)lock_room;
    __shared__ int guarded;
    int t = threadIdx.x, v = x[blockIdx.x * blockDim.x + t];
    if (t == 0) {
        new (&most) cuda::atomic<int, cuda::thread_scope_block>(-1);
        new (&tickets) cuda::atomic<int, cuda::thread_scope_block>(0);
        new (&ready) Latch(blockDim.x);
        new (&lock) Lock(1);
        guarded = 0;
    }
    __syncthreads();
    most.fetch_max(v, cuda::memory_order_relaxed);
    int ticket = tickets.fetch_add(1, cuda::memory_order_acq_rel);
    ready.arrive_and_wait();
    if (t % 32 == 0) {  // one lane of each warp
        lock.acquire();
        guarded += v;
        lock.release();
    }
    cuda::atomic_ref<float, cuda::thread_scope_system> total(*sum);
    total.fetch_add(v, cuda::memory_order_seq_cst);
    cuda::atomic_ref<unsigned short, cuda::thread_scope_device> tiny(small[v & 3]);
    tiny.fetch_add(1, cuda::memory_order_relaxed);
    __syncthreads();
    int* row = out + blockIdx.x * 3;
    if (t == 0) row[0] = most.load(cuda::memory_order_acquire), row[1] = tickets.exchange(5), row[2] = guarded;
    if (ticket == 0) {  // blocks pass data on, one to the next
        int expected = blockIdx.x;
        while (!flag->compare_exchange_weak(expected, -1, cuda::memory_order_acquire)) {
            expected = blockIdx.x;
            __nanosleep(100);
        }
        *data = *data * 2 + blockIdx.x + 1;
        flag->store(blockIdx.x + 1, cuda::memory_order_release);
        if (blockIdx.x + 1 == gridDim.x) flag->notify_all();
    }
}
