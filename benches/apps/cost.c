/* Calls one driver function many times: cost launch|alloc|info CALLS. Prints nanoseconds per call (per pair for alloc):
 * the fastest of 20 parts, since anything slower was disturbed. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(uintptr_t *, size_t), cuMemFree_v2(uintptr_t), cuMemGetInfo_v2(size_t *, size_t *);
extern int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static int one(char what)
{
    size_t a, b;
    uintptr_t p = 0;
    switch (what) {
    case 'l': return cuLaunchKernel((void *)0x1000, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    case 'a': return cuMemAlloc_v2(&p, 4096) | cuMemFree_v2(p);
    default: return cuMemGetInfo_v2(&a, &b);
    }
}
int main(int argc, char **argv)
{
    char what = argv[1][0];
    long calls = argc > 2 ? atol(argv[2]) : 1000000, part = calls / 20;
    void *context;
    int bad = cuInit(0) | cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
    double best = 1e18;
    for (int i = 0; i < 1000; i++) bad |= one(what); /* first use: state, predictions */
    for (int i = 0; i < 20; i++) {
        double start = now();
        for (long n = 0; n < part; n++) bad |= one(what);
        double each = (now() - start) / part;
        if (each < best) best = each;
    }
    printf("%.2f\n", best);
    return bad;
}
