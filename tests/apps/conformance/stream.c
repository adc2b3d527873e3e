/* Streams, events, ordering, the launch queue. CUDA Driver API: "Stream Management", "Event Management", "Stream
 * memory operations", "Stream synchronization behavior". Nothing here depends on how fast the host is: what must not be
 * finished waits for a flag that the host has not yet set, and durations are read off the GPU's clock. */
#include "../driver.h"
#include <unistd.h>
static volatile uint32_t *flag;
static CUdeviceptr flag_address;
static uint32_t turn;
/* Holds the stream until open_gate(). */
static void close_gate(CUstream stream)
{
    OK(cuStreamWaitValue32_v2(stream, flag_address, turn + 1, 0 /* greater or equal */));
}
static void open_gate(void) { __atomic_store_n(flag, ++turn, __ATOMIC_SEQ_CST); }
static int order[4], calls;
static void note(void *which) { order[__atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST) & 3] = (int)(intptr_t)which; }
/* A host function that ends when another stream has written the value, or after 20 s. */
static int was_written;
static void await_value(void *value)
{
    for (int i = 0; i < 20000 && !was_written; i++) {
        was_written = *flag == (uint32_t)(intptr_t)value;
        usleep(1000);
    }
}
int main(void)
{
    setup();
    CUstream a, b, blocking;
    CUevent start, stop, stop_b, untimed;
    float ms = -1;
    OK(cuMemHostAlloc((void **)&flag, 4096, 2 /* device map */));
    OK(cuMemHostGetDevicePointer_v2(&flag_address, (void *)flag, 0));
    *flag = 0;
    OK(cuStreamCreate(&a, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, 0));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&stop, 0));
    OK(cuEventCreate(&stop_b, 0));
    OK(cuEventCreate(&untimed, EVENT_DISABLE_TIMING));
    if (cuStreamWaitValue32_v2(a, flag_address, 0, 0) == NOT_SUPPORTED) {
        printf("skip: no stream memory operations\n");
        return 77;
    }
    /* An event never recorded counts as complete, but has no time. */
    OK(cuEventQuery(start));
    EXPECT(INVALID_HANDLE, cuEventElapsedTime(&ms, start, stop));
    /* A held stream: nothing behind the gate happens, NOT_READY everywhere, until the host sets the value. */
    close_gate(a);
    OK(cuEventRecord(start, a));
    OK(launch(spin, a, 30000000));
    OK(cuEventRecord(stop, a));
    EXPECT(NOT_READY, cuStreamQuery(a));
    EXPECT(NOT_READY, cuEventQuery(start));
    EXPECT(NOT_READY, cuEventQuery(stop));
    EXPECT(NOT_READY, cuEventElapsedTime(&ms, start, stop));
    open_gate();
    OK(cuEventSynchronize(stop));
    OK(cuStreamQuery(a));
    OK(cuEventElapsedTime(&ms, start, stop)); /* 30 ms of GPU time, whatever the host did meanwhile */
    CHECK(ms >= 29.9f && ms < 60);
    OK(cuEventRecord(untimed, a));
    OK(cuStreamSynchronize(a));
    EXPECT(INVALID_HANDLE, cuEventElapsedTime(&ms, start, untimed));
    /* Two streams of one context run side by side. */
    close_gate(a);
    close_gate(b);
    OK(cuEventRecord(start, a));
    OK(launch(spin, a, 40000000));
    OK(launch(spin, b, 40000000));
    OK(cuEventRecord(stop, a));
    OK(cuEventRecord(stop_b, b));
    open_gate();
    OK(cuCtxSynchronize());
    OK(cuEventElapsedTime(&ms, start, stop_b));
    CHECK(ms < 75);
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 39.9f);
    /* Waiting for an event orders two streams. */
    close_gate(a);
    OK(cuLaunchHostFunc(a, note, (void *)1));
    OK(cuEventRecord(untimed, a));
    OK(cuStreamWaitEvent(b, untimed, 0));
    OK(cuLaunchHostFunc(b, note, (void *)2));
    EXPECT(NOT_READY, cuStreamQuery(b));
    open_gate();
    OK(cuCtxSynchronize());
    CHECK(calls == 2 && order[0] == 1 && order[1] == 2);
    /* The legacy default stream waits for blocking streams, and they for it; a non-blocking one does not care. */
    close_gate(blocking);
    close_gate(a);
    OK(launch(spin, NULL, 0));
    EXPECT(NOT_READY, cuStreamQuery(NULL));
    OK(launch(spin, b, 0));
    OK(cuStreamSynchronize(b));
    open_gate();
    OK(cuStreamSynchronize(NULL));
    OK(cuStreamQuery(blocking));
    OK(cuStreamSynchronize(a));
    close_gate(a);
    OK(launch(spin, NULL, 0));
    OK(cuStreamSynchronize(NULL)); /* not held up by the non-blocking stream */
    EXPECT(NOT_READY, cuStreamQuery(a));
    open_gate();
    OK(cuCtxSynchronize());
    /* More launches than the queue holds: the call blocks, none is lost. */
    OK(cuEventRecord(start, a));
    for (int i = 0; i < 3000; i++) OK(launch(spin, a, 10000));
    OK(cuEventRecord(stop, a));
    OK(cuStreamSynchronize(a));
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 29.9f);
    /* A value written by a stream is seen by the host, and by another stream that waits for it. */
    OK(cuStreamWaitValue32_v2(b, flag_address, 1000, 1));
    OK(cuStreamWriteValue32_v2(a, flag_address, 1000, 0));
    OK(cuStreamSynchronize(b));
    CHECK(*flag == 1000);
    /* So does a stream whose neighbour is in a host function. */
    OK(cuLaunchHostFunc(a, await_value, (void *)2000));
    OK(cuStreamWriteValue32_v2(b, flag_address, 2000, 0));
    OK(cuStreamSynchronize(a));
    CHECK(was_written);
    /* Flags; handles that are none; destroying what is in use. */
    EXPECT(INVALID_VALUE, cuStreamCreate(NULL, 0));
    unsigned flags = 9;
    OK(cuStreamGetFlags(a, &flags));
    CHECK(flags == STREAM_NON_BLOCKING);
    OK(launch(spin, a, 1000000));
    OK(cuEventRecord(stop, a));
    OK(cuEventDestroy_v2(stop));
    OK(cuStreamDestroy_v2(a));
    OK(cuCtxSynchronize());
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(stop_b));
    OK(cuEventDestroy_v2(untimed));
    OK(cuStreamDestroy_v2(b));
    OK(cuStreamDestroy_v2(blocking));
    return finish("stream");
}
