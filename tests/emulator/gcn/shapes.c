// A kernel that writes down what a launch tells it: arguments, hidden arguments, and the dispatch packet.
#define GLOBAL __attribute__((address_space(1)))
#define CONSTANT __attribute__((address_space(4)))
#define LOCAL __attribute__((address_space(3)))
typedef unsigned int word;
typedef unsigned short half_word;
extern LOCAL word dynamic[];

__attribute__((amdgpu_kernel)) void shapes(GLOBAL word *out, word given, GLOBAL const word *in, unsigned long wide) {
    word group = __builtin_amdgcn_workgroup_id_x() + 2 * __builtin_amdgcn_workgroup_id_y();
    GLOBAL word *o = out + 32 * group;
    if (__builtin_amdgcn_workitem_id_x() | __builtin_amdgcn_workitem_id_y()) return;
#if VERSION >= 5 // where these hidden arguments lie since then
    const CONSTANT char *implicit = (const CONSTANT char *)__builtin_amdgcn_implicitarg_ptr();
    for (int axis = 0; axis < 3; axis++) {
        o[axis] = ((const CONSTANT word *)implicit)[axis];
        o[6 + axis] = ((const CONSTANT half_word *)(implicit + 18))[axis];
        o[9 + axis] = ((const CONSTANT word *)(implicit + 40))[2 * axis];
    }
    o[15] = *(const CONSTANT half_word *)(implicit + 64);
    o[16] = *(const CONSTANT word *)(implicit + 120);
    o[21] = *(const CONSTANT word *)(implicit + 72); // printf's buffer: none
#endif
    // Version 4 has the group's size in the packet, later ones in a hidden argument.
    o[3] = __builtin_amdgcn_workgroup_size_x();
    o[4] = __builtin_amdgcn_workgroup_size_y();
    o[5] = __builtin_amdgcn_workgroup_size_z();
    o[12] = __builtin_amdgcn_grid_size_x();
    o[13] = __builtin_amdgcn_grid_size_y();
    o[14] = __builtin_amdgcn_grid_size_z();
    o[17] = given;
    o[18] = in[1];
    o[19] = wide;
    o[20] = wide >> 32;
    dynamic[0] = group;
    o[22] = dynamic[0];
}
