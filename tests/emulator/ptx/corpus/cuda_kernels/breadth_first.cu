// targets: sm_90a
// Breadth-first search by a cooperative grid: lanes that found a vertex append it together.
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void breadth_first(const int* rows, const int* cols, int* level, int* front, int* next, int* count, int n) {
    auto grid = cg::this_grid();
    int depth = 0;
    int size = 1;
    while (size > 0) {
        for (int i = grid.thread_rank(); i < size; i += grid.size()) {
            int v = __ldcg(front + i);
            for (int e = rows[v]; e < rows[v + 1]; e++) {
                int u = cols[e];
                if (atomicCAS(level + u, -1, depth + 1) == -1) {
                    auto active = cg::coalesced_threads();
                    int base;
                    if (active.thread_rank() == 0) base = atomicAdd(count + (depth & 1), active.size());
                    base = active.shfl(base, 0);
                    __stcg(next + base + active.thread_rank(), u);
                }
            }
        }
        grid.sync();
        size = *(volatile int*)(count + (depth & 1));
        if (grid.thread_rank() == 0) *(volatile int*)(count + ((depth + 1) & 1)) = 0;
        int* t = front; front = next; next = t;
        depth++;
        grid.sync();
    }
}
