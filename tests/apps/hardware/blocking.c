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
static void query(void) { cuEventQuery(after_kernel); }
static void elapsed(void)
{
    float ms;
    cuEventElapsedTime(&ms, before_kernel, own_event);
}
static void record(void) { cuEventRecord(own_event, own); }
static void launch_one(void) { launch(work, own, 1); }
static void exchange_mode(void)
{
    int mode = CAPTURE_RELAXED;
    cuThreadExchangeStreamCaptureMode(&mode);
    cuThreadExchangeStreamCaptureMode(&mode);
}
static void mem_get_info(void)
{
    size_t free_bytes, total;
    cuMemGetInfo_v2(&free_bytes, &total);
}
static const struct { const char *name; void (*call)(void); } CALLS[] = {
    {"query", query}, {"elapsed", elapsed}, {"record", record}, {"launch", launch_one}, {"exchange_mode", exchange_mode}, {"mem_get_info", mem_get_info}};
/* One call a kernel: a call that waits would hide that the next one does. */
static void measure(int how, int call)
{
    double longest = 0;
    pthread_t thread;
    char name[64];
    over = 0;
    OK(cuEventRecord(before_kernel, busy));
    OK(launch(spin, busy, 300000000));
    OK(cuEventRecord(after_kernel, busy));
    OK(cuEventRecord(own_event, own));
    pthread_create(&thread, NULL, waiter, &how);
    usleep(20000);
    while (!over) {
        double begin = now_us();
        CALLS[call].call();
        if (now_us() - begin > longest) longest = now_us() - begin;
        usleep(500);
    }
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    snprintf(name, sizeof name, "%s_%s", WAITS[how], CALLS[call].name);
    report(name, longest, "us");
}
int main(void)
{
    setup();
    OK(cuStreamCreate(&busy, 0));
    OK(cuStreamCreate(&own, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&before_kernel, 0));
    OK(cuEventCreate(&after_kernel, 0));
    OK(cuEventCreate(&own_event, 0));
    for (int how = 0; how < 6; how++)
        for (int call = 0; call < 6; call++) measure(how, call);
    return failures != 0;
}
