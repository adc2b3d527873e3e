/* A driver that does nothing but take time: the host's for a call, as an H200's driver takes it (docs/evidence.md), and the GPU's for a
 * kernel, of which each stream runs one after the other. A function's handle is its kernel's time (ns). */
#define cuLaunchKernel noop_cuLaunchKernel
#define cuEventCreate noop_cuEventCreate
#define cuEventRecord noop_cuEventRecord
#define cuEventQuery noop_cuEventQuery
#define cuEventSynchronize noop_cuEventSynchronize
#define cuEventElapsedTime noop_cuEventElapsedTime
#define cuStreamQuery noop_cuStreamQuery
#define cuStreamSynchronize noop_cuStreamSynchronize
#define cuCtxSynchronize noop_cuCtxSynchronize
#include "noop.c"
#undef cuLaunchKernel
#undef cuEventCreate
#undef cuEventRecord
#undef cuEventQuery
#undef cuEventSynchronize
#undef cuEventElapsedTime
#undef cuStreamQuery
#undef cuStreamSynchronize
#undef cuCtxSynchronize
#include <time.h>
enum { LAUNCH_NS = 2700, RECORD_NS = 650, QUERY_NS = 120, ELAPSED_NS = 220, GAP_NS = 1000, STREAMS = 64, EVENTS = 1 << 16 };
enum { NOT_READY = 600 };
/* When the work of a stream ends, and when an event is reached (CLOCK_MONOTONIC, ns). */
static uint64_t ends[STREAMS], reached[EVENTS], events;
static char lock;
static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}
static void spend(uint64_t ns) { for (uint64_t end = now() + ns; now() < end;) ; }
static uint64_t *end_of(void *stream) { return &ends[((uintptr_t)stream >> 4) % STREAMS]; }
/* Puts work on a stream; the host spends its time in it, one thread at a time. Returns when it ends. */
static uint64_t put(void *stream, uint64_t host_ns, uint64_t gpu_ns)
{
    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) ;
    spend(host_ns);
    uint64_t *end = end_of(stream), from = now();
    if (*end > from) from = *end;
    uint64_t to = *end = from + gpu_ns;
    __atomic_clear(&lock, __ATOMIC_RELEASE);
    return to;
}
static CUresult is_past(uint64_t ns) { return now() >= ns ? 0 : NOT_READY; }
static CUresult until(uint64_t ns) { while (is_past(ns)) ; return 0; }
CUresult cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                        void *s, void **p, void **x)
{
    (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)h; (void)p; (void)x;
    put(s, LAUNCH_NS, (uintptr_t)f + GAP_NS);
    return 0;
}
CUresult cuEventCreate(void **e, unsigned f)
{
    (void)f;
    *e = &reached[__atomic_add_fetch(&events, 1, __ATOMIC_RELAXED) % EVENTS];
    return 0;
}
CUresult cuEventRecord(void *e, void *s) { *(uint64_t *)e = put(s, RECORD_NS, RECORD_NS); return 0; }
CUresult cuEventQuery(void *e) { spend(QUERY_NS); return is_past(*(uint64_t *)e); }
CUresult cuEventSynchronize(void *e) { return until(*(uint64_t *)e); }
CUresult cuEventElapsedTime(float *ms, void *a, void *b)
{
    spend(ELAPSED_NS);
    *ms = (float)(((double)*(uint64_t *)b - (double)*(uint64_t *)a) / 1e6);
    return is_past(*(uint64_t *)b);
}
CUresult cuStreamQuery(void *s) { spend(QUERY_NS); return is_past(*end_of(s)); }
CUresult cuStreamSynchronize(void *s) { return until(*end_of(s)); }
CUresult cuCtxSynchronize(void)
{
    for (int i = 0; i < STREAMS; i++) until(ends[i]);
    return 0;
}
