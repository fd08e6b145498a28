// targets: sm_80 sm_90a
// A work-efficient scan in dynamic shared memory, beside a static array.
extern __shared__ int buffer[];
extern "C" __global__ void dynamic_shared(const int* x, int* out, int n) {
    __shared__ int total;
    int t = threadIdx.x, *keep = buffer + n;
    for (int i = t; i < n; i += blockDim.x) keep[i] = buffer[i] = x[blockIdx.x * n + i];
    for (int step = 1; step < n; step *= 2) {
        __syncthreads();
        int i = (t + 1) * step * 2 - 1;
        if (i < n) buffer[i] += buffer[i - step];
    }
    __syncthreads();
    if (t == 0) total = buffer[n - 1], buffer[n - 1] = 0;
    for (int step = n / 2; step; step /= 2) {
        __syncthreads();
        int i = (t + 1) * step * 2 - 1;
        if (i < n) {
            int below = buffer[i - step];
            buffer[i - step] = buffer[i];
            buffer[i] += below;
        }
    }
    __syncthreads();
    for (int i = t; i < n; i += blockDim.x) out[blockIdx.x * n + i] = buffer[i] + keep[i] * total;
}
