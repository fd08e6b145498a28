// targets: sm_80 sm_90a
// A bitonic sort of keys with values in shared memory.
extern "C" __global__ void bitonic_sort(float* keys, int* values) {
    __shared__ float k[256];
    __shared__ int v[256];
    int t = threadIdx.x, base = blockIdx.x * 256;
    k[t] = keys[base + t], v[t] = values[base + t];
    for (int size = 2; size <= 256; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            __syncthreads();
            int other = t ^ step;
            if (other > t && (k[t] > k[other]) == !(t & size)) {
                float a = k[t]; k[t] = k[other]; k[other] = a;
                int b = v[t]; v[t] = v[other]; v[other] = b;
            }
        }
    __syncthreads();
    keys[base + t] = k[t], values[base + t] = v[t];
}
