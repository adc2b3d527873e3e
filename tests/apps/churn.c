/* Allocates and frees at random until it is killed: churn SEED. Bytes, kinds and order are random. */
#include "driver.h"
int main(int argc, char **argv)
{
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    CUdeviceptr held[64] = {0};
    setup();
    printf("started\n");
    fflush(stdout);
    for (;;) {
        int i = rand_r(&seed) % 64;
        if (held[i]) {
            CUresult code = cuMemFree_v2(held[i]);
            if (code != SUCCESS) { printf("FAIL free %d\n", code); return 1; }
            held[i] = 0;
            continue;
        }
        size_t bytes = 1 + ((size_t)rand_r(&seed) << 3) % (64u << 20), pitch;
        CUresult code;
        switch (rand_r(&seed) % 3) {
        case 0: code = cuMemAlloc_v2(&held[i], bytes); break;
        case 1: code = cuMemAllocManaged(&held[i], bytes, 1); break;
        default: code = cuMemAllocPitch_v2(&held[i], &pitch, bytes / 64 + 1, 64, 4); break;
        }
        if (code == OUT_OF_MEMORY) held[i] = 0;
        else if (code != SUCCESS) { printf("FAIL alloc %d\n", code); return 1; }
    }
}
