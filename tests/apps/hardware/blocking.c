/* Which calls of one thread wait while another thread waits for the GPU: the longest time of each, while a kernel of 300 ms
 * runs and a second thread is in one of six calls. docs/hardware.md, "calls that block". */
#include "measure.h"

static CUstream busy, own;
static CUevent before_kernel, after_kernel, own_event;
static volatile int over;
static const char *const WAITS[] = {"ctx_synchronize", "stream_synchronize", "mem_alloc_free", "event_synchronize", "full_queue", "copy_to_host"};
static void *waiter(void *argument)
{
    static char host[4 << 20];
    CUdeviceptr p;
    OK(cuCtxSetCurrent(context));
    switch (*(int *)argument) {
    case 0: OK(cuCtxSynchronize()); break;
    case 1: OK(cuStreamSynchronize(busy)); break;
    case 2:
        OK(cuMemAlloc_v2(&p, 64 * MIB));
        OK(cuMemFree_v2(p));
        break;
    case 3: OK(cuEventSynchronize(after_kernel)); break;
    case 4:
        for (int i = 0; i < 3000; i++) OK(launch(work, busy, 1));
        break;
    default:
        OK(cuMemAlloc_v2(&p, sizeof host));
        OK(cuMemcpyDtoH_v2(host, p, sizeof host));
        OK(cuMemFree_v2(p));
    }
    over = 1;
    return NULL;
}
static void longest(double *so_far, double begin)
{
    double took = now_us() - begin;
    if (took > *so_far) *so_far = took;
}
static void measure(int how)
{
    double query = 0, elapsed = 0, record = 0, launched = 0, exchanged = 0, info = 0, begin;
    pthread_t thread;
    char name[64];
    float ms;
    size_t free_bytes, total;
    over = 0;
    OK(cuEventRecord(before_kernel, busy));
    OK(launch(spin, busy, 300000000));
    OK(cuEventRecord(after_kernel, busy));
    OK(cuEventRecord(own_event, own));
    pthread_create(&thread, NULL, waiter, &how);
    usleep(20000);
    while (!over) {
        int mode = CAPTURE_RELAXED;
        begin = now_us(), cuEventQuery(after_kernel), longest(&query, begin);
        begin = now_us(), cuEventElapsedTime(&ms, before_kernel, own_event), longest(&elapsed, begin);
        begin = now_us(), cuEventRecord(own_event, own), longest(&record, begin);
        begin = now_us(), launch(work, own, 1), longest(&launched, begin);
        begin = now_us(), cuThreadExchangeStreamCaptureMode(&mode), cuThreadExchangeStreamCaptureMode(&mode), longest(&exchanged, begin);
        begin = now_us(), cuMemGetInfo_v2(&free_bytes, &total), longest(&info, begin);
        usleep(500);
    }
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
#define REPORT(call, value) snprintf(name, sizeof name, "%s_%s", WAITS[how], call), report(name, value, "us")
    REPORT("query", query);
    REPORT("elapsed", elapsed);
    REPORT("record", record);
    REPORT("launch", launched);
    REPORT("exchange_mode", exchanged);
    REPORT("mem_get_info", info);
}
int main(void)
{
    setup();
    OK(cuStreamCreate(&busy, 0));
    OK(cuStreamCreate(&own, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&before_kernel, 0));
    OK(cuEventCreate(&after_kernel, 0));
    OK(cuEventCreate(&own_event, 0));
    for (int how = 0; how < 6; how++) measure(how);
    return failures != 0;
}
