// targets: sm_80 sm_90a sm_100a
// Every thread takes a lock for itself, in the two ways of writing it; nvcc makes the first like the second for sm_100a.
extern "C" __global__ void thread_locks(int* locks, int* sum, int* count, int* order) {
    bool done = false;
    while (!done)
        if (atomicCAS(locks, 0, 1) == 0) {
            __threadfence();
            *sum += threadIdx.x;
            __threadfence();
            atomicExch(locks, 0);
            done = true;
        }
    __syncwarp();
    while (atomicCAS(locks + 1, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    order[*count] = blockIdx.x * blockDim.x + threadIdx.x;
    *count += 1;
    __threadfence();
    atomicExch(locks + 1, 0);
}
