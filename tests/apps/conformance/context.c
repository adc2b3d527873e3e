/* Contexts. CUDA Driver API: "Primary Context Management", "Context Management". */
#include "../driver.h"
int main(void)
{
    driver_open();
    CUresult code = cuInit(0);
    if (code == NO_DEVICE) { printf("skip: no device\n"); return 77; }
    OK(code);
    unsigned flags = 9;
    int active = 9;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 0);
    CUcontext primary = NULL, again = NULL, current = (CUcontext)1, own = NULL;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(primary == again);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 1);
    /* Retaining does not make it current. */
    OK(cuCtxGetCurrent(&current));
    CHECK(current == NULL);
    OK(cuCtxSetCurrent(primary));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    /* cuCtxCreate makes the new context current and pushes it onto the thread's stack. */
    OK(cuCtxCreate_v2(&own, 0, 0));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == own && own != primary);
    CUcontext popped = NULL;
    OK(cuCtxPopCurrent_v2(&popped));
    CHECK(popped == own);
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    OK(cuCtxPushCurrent_v2(own));
    CUdeviceptr p = 0;
    OK(cuMemAlloc_v2(&p, 1 << 20));
    size_t before, after, total;
    OK(cuMemGetInfo_v2(&before, &total));
    OK(cuCtxDestroy_v2(own)); /* frees what it holds, and is popped from this thread */
    OK(cuCtxGetCurrent(&current));
    CHECK(current == primary);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after >= before + (1 << 20));
    EXPECT(INVALID_VALUE, cuMemFree_v2(p));
    CHECK(cuCtxDestroy_v2(own) != SUCCESS);
    /* The last release destroys the primary context; one more is refused. */
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active == 0);
    EXPECT(INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    CHECK(cuMemAlloc_v2(&p, 16) != SUCCESS); /* current, but destroyed */
    EXPECT(INVALID_DEVICE, cuDevicePrimaryCtxRetain(&primary, 1000));
    EXPECT(INVALID_VALUE, cuDevicePrimaryCtxRetain(NULL, 0));
    return finish("context");
}
