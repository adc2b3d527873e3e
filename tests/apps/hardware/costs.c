/* What the calls cost that the shim makes on behalf of an application: on the host, by the clock; on the GPU, by events.
 * docs/hardware.md, "time of an event", "clock of events". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream, CUcontext *))                                                   \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (CUmemoryPool *, CUdevice))
#include "measure.h"

static CUstream stream;
static CUevent begin, end;

static void host_costs(void)
{
    float ms;
    int mode, status;
    CUcontext asked;
    CUmemoryPool pool;
    CUevent made;
    CUdeviceptr p;
    uint64_t held;
    size_t free_bytes, total;
    TIME_EACH("launch_and_wait", 300, launch(work, stream, 1); cuStreamSynchronize(stream));
    TIME_EACH("launch_queued", 300, launch(work, stream, 1));
    OK(cuCtxSynchronize());
    TIME_EACH("event_record", 300, cuEventRecord(begin, stream));
    OK(cuCtxSynchronize());
    TIME_EACH("event_record_legacy", 300, cuEventRecord(begin, NULL));
    OK(cuCtxSynchronize());
    OK(launch(spin, stream, 20000000));
    OK(cuEventRecord(begin, stream));
    TIME_EACH("event_query_pending", 300, cuEventQuery(begin));
    OK(cuCtxSynchronize());
    TIME_EACH("event_query_done", 300, cuEventQuery(begin));
    OK(cuEventRecord(end, stream));
    OK(cuCtxSynchronize());
    TIME_EACH("event_elapsed", 300, cuEventElapsedTime(&ms, begin, end));
    TIME_EACH("event_create_destroy", 200, cuEventCreate(&made, 0); cuEventDestroy_v2(made));
    TIME_EACH("exchange_mode_twice", 300, mode = CAPTURE_RELAXED; cuThreadExchangeStreamCaptureMode(&mode);
              cuThreadExchangeStreamCaptureMode(&mode));
    TIME_EACH("stream_is_capturing", 300, cuStreamIsCapturing(stream, &status));
    TIME_EACH("ctx_get_current", 300, cuCtxGetCurrent(&asked));
    TIME_EACH("stream_get_ctx", 300, cuStreamGetCtx(stream, &asked));
    OK(cuDeviceGetMemPool(&pool, device));
    TIME_EACH("pool_attribute", 300, cuMemPoolGetAttribute(pool, 5, &held));
    TIME_EACH("mem_get_info", 200, cuMemGetInfo_v2(&free_bytes, &total));
    TIME_EACH("mem_alloc_free_1M", 200, cuMemAlloc_v2(&p, MIB); cuMemFree_v2(p));
}

/* The elapsed time that a pair of events tells with nothing, an empty kernel or a known kernel between them. */
static void pairs(void)
{
    static const struct { const char *name; int kernels; uint64_t ns; } kinds[] = {
        {"pair_empty", 0, 0}, {"pair_empty_kernel", 1, 0}, {"pair_10us", 1, 10000}, {"pair_100us", 1, 100000}, {"pair_1ms", 1, 1000000}};
    static double elapsed[200];
    float ms;
    for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (int i = 0; i < 200; i++) {
            OK(cuEventRecord(begin, stream));
            if (kinds[kind].kernels) OK(launch(kinds[kind].ns ? spin : work, stream, kinds[kind].ns));
            OK(cuEventRecord(end, stream));
            OK(cuStreamSynchronize(stream));
            OK(cuEventElapsedTime(&ms, begin, end));
            elapsed[i] = ms * 1e3;
        }
        report_spread(kinds[kind].name, elapsed, 200, "us");
    }
}

/* 2000 kernels of 5 us without events, and with one after every 64th and every 8th. */
static void chains(void)
{
    static const int every[] = {0, 64, 8};
    char name[48];
    for (int kind = 0; kind < 3; kind++) {
        double best = 1e18;
        for (int round = 0; round < 5; round++) {
            double from = now_us();
            for (int i = 0; i < 2000; i++) {
                OK(launch(spin, stream, 5000));
                if (every[kind] && i % every[kind] == 0) OK(cuEventRecord(begin, stream));
            }
            OK(cuStreamSynchronize(stream));
            if (now_us() - from < best) best = now_us() - from;
        }
        snprintf(name, sizeof name, "chain_event_every_%d", every[kind]);
        report(name, best, "us");
    }
}

static void clocks(void)
{
    float ms, step = 1e9f;
    double host;
    OK(cuEventRecord(begin, stream));
    OK(cuStreamSynchronize(stream));
    host = now_us();
    for (int second = 0; second < 2; second++) {
        sleep(1);
        OK(cuEventRecord(end, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuEventElapsedTime(&ms, begin, end));
    }
    report("clock_drift_2s", ms * 1e3 - (now_us() - host), "us");
    for (int i = 0; i < 300; i++) {
        OK(cuEventRecord(begin, stream));
        OK(cuEventRecord(end, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuEventElapsedTime(&ms, begin, end));
        if (ms > 0 && ms < step) step = ms;
    }
    report("clock_step", step * 1e6, "ns");
}

int main(void)
{
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(launch(work, stream, 1));
    OK(cuCtxSynchronize());
    host_costs();
    pairs();
    chains();
    clocks();
    return failures != 0;
}
