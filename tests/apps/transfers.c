/* Keeps the GPU busy with copies and sets of 1 MiB: transfers SECONDS HOW. `host`: kernels of 500 us with a copy from the
 * host after each. Prints "started", then at the end "moved N". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemcpyAsync, cuMemcpyAsync, 4000, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                \
    X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync, 3020, (const Copy2D *, CUstream))                                           \
    X(cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, (CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream))
#include "driver.h"
#include <time.h>
#define BYTES (1 << 20)
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv)
{
    double seconds = atof(argv[1]);
    const char *how = argv[2];
    CUdeviceptr a, b;
    CUstream s;
    void *host;
    unsigned long long moved = 0;
    setup();
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuMemAlloc_v2(&a, BYTES));
    OK(cuMemAlloc_v2(&b, BYTES));
    OK(cuMemAllocHost_v2(&host, BYTES));
    Copy2D shape = {.srcMemoryType = MEMORY_DEVICE, .srcDevice = a, .srcPitch = 1024, .dstMemoryType = MEMORY_DEVICE,
                    .dstDevice = b, .dstPitch = 1024, .WidthInBytes = 1024, .Height = 1024};
    CUgraph graph;
    CUgraphExec exec = NULL;
    if (!strcmp(how, "graph")) {
        OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
        for (int i = 0; i < 4; i++) OK(cuMemcpyDtoDAsync_v2(b, a, BYTES, s));
        OK(cuStreamEndCapture(s, &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    printf("started\n");
    fflush(stdout);
    for (double end = now() + seconds; now() < end && !failures; moved++) {
        if (exec) OK(cuGraphLaunch(exec, s));
        else if (!strcmp(how, "within")) OK(cuMemcpyDtoD_v2(b, a, BYTES));
        else if (!strcmp(how, "within-async")) OK(cuMemcpyDtoDAsync_v2(b, a, BYTES, s));
        else if (!strcmp(how, "any")) OK(cuMemcpy(b, a, BYTES));
        else if (!strcmp(how, "any-async")) OK(cuMemcpyAsync(b, a, BYTES, s));
        else if (!strcmp(how, "rows")) OK(cuMemcpy2DAsync_v2(&shape, s));
        else if (!strcmp(how, "set")) OK(cuMemsetD8_v2(a, 7, BYTES));
        else if (!strcmp(how, "set-async")) OK(cuMemsetD32Async(a, 7, BYTES / 4, s));
        else if (!strcmp(how, "set-rows")) OK(cuMemsetD2D32Async(a, 1024, 7, 256, 1024, s));
        else if (!strcmp(how, "host")) {
            OK(launch(spin, s, 500000));
            OK(cuMemcpyHtoDAsync_v2(a, host, BYTES, s));
        } else {
            printf("FAIL %s?\n", how);
            return 1;
        }
    }
    printf("moved %llu\n", moved);
    return failures ? 1 : 0;
}
