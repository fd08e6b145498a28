// targets: sm_80 sm_90a
// Arrays of each thread with indices known only at run time: an insertion sort and a histogram in local memory.
extern "C" __global__ void local_arrays(const int* x, int* sorted, unsigned char* counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, values[12];
    unsigned char count[8] = {};
    for (int k = 0; k < 12; k++) {
        int v = x[i * 12 + k], j = k;
        count[v & 7]++;
        for (; j > 0 && values[j - 1] > v; j--) values[j] = values[j - 1];
        values[j] = v;
    }
    for (int k = 0; k < 12; k++) sorted[i * 12 + k] = values[k];
    for (int k = 0; k < 8; k++) counts[i * 8 + k] = count[k];
}
