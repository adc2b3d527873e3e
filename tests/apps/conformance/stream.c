/* Streams, events, ordering, the launch queue. CUDA Driver API: "Stream Management", "Event Management",
 * "Stream synchronization behavior". */
#include "../driver.h"
#include <time.h>
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static int order[4], calls;
static void note(void *which) { order[calls++ & 3] = (int)(intptr_t)which; }
int main(void)
{
    setup();
    CUstream a, b;
    CUevent start, stop, untimed;
    OK(cuStreamCreate(&a, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&stop, 0));
    OK(cuEventCreate(&untimed, EVENT_DISABLE_TIMING));
    /* An event never recorded counts as complete, but has no time. */
    OK(cuEventQuery(start));
    float ms = -1;
    EXPECT(INVALID_HANDLE, cuEventElapsedTime(&ms, start, stop));
    /* A 30 ms kernel: asynchronous, NOT_READY while it runs, its events measure it. */
    double t0 = now_ms();
    OK(cuEventRecord(start, a));
    OK(launch(spin, a, 30000000));
    OK(cuEventRecord(stop, a));
    CHECK(now_ms() - t0 < 25);
    EXPECT(NOT_READY, cuStreamQuery(a));
    EXPECT(NOT_READY, cuEventQuery(stop));
    EXPECT(NOT_READY, cuEventElapsedTime(&ms, start, stop));
    OK(cuEventSynchronize(stop));
    OK(cuStreamQuery(a));
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 29.9f && ms < 200);
    CHECK(now_ms() - t0 >= 29.9);
    OK(cuEventRecord(untimed, a));
    OK(cuStreamSynchronize(a));
    EXPECT(INVALID_HANDLE, cuEventElapsedTime(&ms, start, untimed));
    /* Two streams of one context run side by side; waiting for an event orders them. */
    t0 = now_ms();
    OK(launch(spin, a, 40000000));
    OK(launch(spin, b, 40000000));
    OK(cuCtxSynchronize());
    CHECK(now_ms() - t0 < 75);
    OK(launch(spin, a, 20000000));
    OK(cuEventRecord(stop, a));
    OK(cuStreamWaitEvent(b, stop, 0));
    OK(cuLaunchHostFunc(b, note, (void *)2));
    EXPECT(NOT_READY, cuStreamQuery(b));
    OK(cuLaunchHostFunc(a, note, (void *)1));
    OK(cuCtxSynchronize());
    CHECK(calls == 2);
    /* The legacy default stream waits for blocking streams, and they for it; a non-blocking one does not care. */
    CUstream blocking;
    OK(cuStreamCreate(&blocking, 0));
    OK(launch(spin, blocking, 20000000));
    OK(launch(spin, NULL, 0));
    EXPECT(NOT_READY, cuStreamQuery(NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamQuery(blocking));
    OK(launch(spin, a, 30000000));
    t0 = now_ms();
    OK(launch(spin, NULL, 0));
    OK(cuStreamSynchronize(NULL));
    EXPECT(NOT_READY, cuStreamQuery(a));
    OK(cuCtxSynchronize());
    /* More launches than the queue holds: the call blocks, none is lost. */
    OK(cuEventRecord(start, a));
    for (int i = 0; i < 3000; i++) OK(launch(spin, a, 10000));
    OK(cuEventRecord(stop, a));
    OK(cuStreamSynchronize(a));
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 29.9f);
    /* A stream that waits for a value which the host writes later. */
    uint32_t *flag = NULL;
    CUdeviceptr address = 0;
    OK(cuMemHostAlloc((void **)&flag, 4096, 2 /* device map */));
    OK(cuMemHostGetDevicePointer_v2(&address, flag, 0));
    *flag = 0;
    CUresult supported = cuStreamWaitValue32_v2(b, address, 7, 1 /* equal */);
    if (supported == SUCCESS) {
        OK(launch(spin, b, 0));
        EXPECT(NOT_READY, cuStreamQuery(b));
        __atomic_store_n(flag, 7, __ATOMIC_SEQ_CST);
        OK(cuStreamSynchronize(b));
    } else {
        CHECK(supported == NOT_SUPPORTED);
    }
    /* Handles that are none. */
    EXPECT(INVALID_VALUE, cuStreamCreate(NULL, 0));
    unsigned flags = 9;
    OK(cuStreamGetFlags(a, &flags));
    CHECK(flags == STREAM_NON_BLOCKING);
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(stop));
    OK(cuEventDestroy_v2(untimed));
    OK(cuStreamDestroy_v2(a));
    OK(cuStreamDestroy_v2(b));
    OK(cuStreamDestroy_v2(blocking));
    return finish("stream");
}
