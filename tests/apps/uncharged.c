/* Ways to keep the GPU busy that a limiter of GPU time finds hard to charge: uncharged HOW. Prints "started", and goes on until
 * it is killed.
 *   grow-sync     a kernel of 10 us, then the same function for 20 ms, each waited for by cuCtxSynchronize
 *   grow-poll     so, each waited for by cuStreamQuery
 *   streams       1 ms on each of 300 streams in turn
 *   streams-ahead  so, without waiting for any
 *   streams-crowded  1 ms on each of 300 streams in turn, for which the shim has no place; ends if its calls do not wait
 *   confined      1 ms on one stream; before the first launch RLIMIT_AS leaves 8 MiB of address space
 *   threads       300 threads that launch 1 ms on the default stream of the thread
 *   threads-long  32 threads that launch 50 ms on the default stream of the thread
 *   captured      another stream is captured meanwhile by this thread; kernels of 1 ms
 *   captured-grow  so, by another thread, anew each 50 ms; a kernel of 10 us, then the same function for 20 ms
 *   gated         the stream waits for a value, 70 host functions, then kernels of 1 ms; the value comes at once
 *   contexts      1 ms in each of 40 contexts in turn
 *   other         the stream is another context's than the current one
 *   other-kernel  so, by a CUkernel
 *   green         the stream is a green context's, the primary context is current
 *   ahead         1 ms on one stream, as many launches ahead as the driver takes
 *   burst NS      four kernels of so many ns on one stream, then nothing
 *   each NS       kernels of so many ns on one stream, each waited for
 *   idle          nothing
 *   pauses        seven kernels of 52 us, then nothing for 1 ms, without waiting for any
 *   plain         1 ms on one stream */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, void *, int))                                  \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (void **, void *, unsigned))                        \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (void **, void *, CUdevice, unsigned))                                \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, (CUstream *, void *, unsigned, int))
#include "driver.h"
#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#define US 1000ull
#define MS 1000000ull
enum { STREAMS = 300, CONTEXTS = 40 };
static CUstream stream;
static CUfunction function;

static void grow(int polls)
{
    OK(launch(spin, stream, 10 * US));
    OK(cuStreamSynchronize(stream));
    while (!failures) {
        OK(launch(spin, stream, 20 * MS));
        if (!polls) OK(cuCtxSynchronize());
        else
            while (cuStreamQuery(stream) == NOT_READY) {
                struct timespec pause = {0, 50000};
                nanosleep(&pause, NULL);
            }
    }
}
static void on_streams(int waits)
{
    static CUstream all[STREAMS];
    for (int i = 0; i < STREAMS; i++) OK(cuStreamCreate(&all[i], STREAM_NON_BLOCKING));
    while (!failures) {
        for (int i = 0; i < STREAMS; i++) OK(launch(spin, all[i], MS));
        if (waits) OK(cuCtxSynchronize());
    }
}
/* Streams that would have their entries in the same 64 of the shim's 4,096 places (shim/src/compute/stream_table.rs): most have
 * none, like those beyond 4,096. No event measures their launches, so that the call returns when the kernel is done. */
static void on_crowded_streams(void)
{
    static CUstream all[STREAMS];
    for (int i = 0; i < STREAMS;) {
        OK(cuStreamCreate(&all[i], STREAM_NON_BLOCKING));
        if (((uint64_t)(uintptr_t)all[i] * 0x9e3779b97f4a7c15 >> 40) % 4096 < 64) i++;
        else OK(cuStreamDestroy_v2(all[i]));
    }
    while (!failures) {
        int done = 0;
        for (int i = 0; i < STREAMS; i++) {
            OK(launch(spin, all[i], MS));
            done += cuStreamQuery(all[i]) == SUCCESS;
        }
        CHECK(done > STREAMS / 2);
    }
}
static uint64_t thread_ns;
static void leave_address_space(rlim_t bytes)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    OK(!file || fscanf(file, "%lu", &pages) != 1);
    fclose(file);
    struct rlimit limit = {pages * sysconf(_SC_PAGESIZE) + bytes, RLIM_INFINITY};
    OK(setrlimit(RLIMIT_AS, &limit));
}
static void *thread(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(context));
    while (!failures) {
        OK(launch(spin, STREAM_PER_THREAD, thread_ns));
        OK(cuStreamSynchronize(STREAM_PER_THREAD));
    }
    return NULL;
}
static void on_threads(int count, uint64_t ns)
{
    pthread_t last;
    thread_ns = ns;
    for (int i = 0; i < count; i++) CHECK(!pthread_create(&last, NULL, thread, NULL));
    pthread_join(last, NULL);
}
/* A stream that is captured, and nothing is launched there. */
static CUstream captured_stream(void)
{
    CUstream captured;
    OK(cuStreamCreate(&captured, STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(captured, CAPTURE_RELAXED));
    return captured;
}
static void *captures(void *unused)
{
    struct timespec pause = {0, 50 * MS};
    OK(cuCtxSetCurrent(context));
    for (CUstream captured = captured_stream(); !failures;) {
        CUgraph graph;
        nanosleep(&pause, NULL);
        OK(cuStreamEndCapture(captured, &graph));
        OK(cuGraphDestroy(graph));
        OK(cuStreamBeginCapture_v2(captured, CAPTURE_RELAXED));
    }
    return unused;
}
static void beside_captures(void)
{
    pthread_t other;
    CHECK(!pthread_create(&other, NULL, captures, NULL));
    OK(launch(spin, stream, 10 * US));
    while (!failures) {
        OK(cuStreamSynchronize(stream));
        OK(launch(spin, stream, 20 * MS));
    }
}
static void nothing(void *unused) { (void)unused; }
static void gated(void)
{
    CUdeviceptr flag;
    CUstream other;
    uint32_t round = 0;
    OK(cuMemAlloc_v2(&flag, 4096));
    OK(cuMemsetD32_v2(flag, 0, 1));
    OK(cuStreamCreate(&other, STREAM_NON_BLOCKING));
    while (!failures) {
        round++;
        OK(cuStreamWaitValue32_v2(stream, flag, round, 0));
        for (int i = 0; i < 70; i++) OK(cuLaunchHostFunc(stream, nothing, NULL));
        for (int i = 0; i < 30; i++) OK(launch(spin, stream, MS));
        OK(cuStreamWriteValue32_v2(other, flag, round, 0));
        OK(cuStreamSynchronize(stream));
    }
}
static void with_pauses(void)
{
    struct timespec pause = {0, 1000000};
    while (!failures) {
        for (int i = 0; i < 7; i++) OK(launch(function, stream, 52 * US));
        nanosleep(&pause, NULL);
    }
}
static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}
/* A correct program: its host takes longer for a launch than the GPU, and pauses now and then; at its beginning, or once in two seconds,
 * for `pause_ms`, with launches behind it for which it has not waited. */
static void short_kernels(long pause_ms)
{
    struct timespec pause = {0, pause_ms * MS};
    for (long round = 0; !failures; round++) {
        if (pause_ms && round % 2000 == 0) {
            for (int i = 0; i < 200; i++) {
                uint64_t next_ns = now_ns() + 12 * US;
                OK(launch(function, stream, 2 * US));
                while (now_ns() < next_ns) {}
            }
            nanosleep(&pause, NULL);
        }
        for (int i = 0; i < 50; i++) {
            uint64_t next_ns = now_ns() + (i == 25 ? 400 : 12) * US;
            OK(launch(function, stream, 2 * US));
            while (now_ns() < next_ns) {}
        }
        OK(cuStreamSynchronize(stream));
    }
}
/* Pauses between short kernels, until the tenant has tokens to spare; then the same kernel for 4 ms, which nothing waits for. */
static void after_savings(CUstream own)
{
    struct timespec pause = {0, 200 * US}, longer = {0, 5 * MS};
    while (!failures) {
        for (int i = 0; i < 200; i++) {
            OK(launch(function, own, 2 * US));
            nanosleep(&pause, NULL);
        }
        OK(cuStreamSynchronize(own));
        for (int i = 0; i < 20; i++) {
            OK(launch(function, own, 4 * MS));
            nanosleep(&longer, NULL);
        }
    }
}
/* The same short kernel again and again, and then for 9 ms, before a pause in which nothing tells when it ended. */
static void hidden(void)
{
    struct timespec pause = {0, 12 * MS};
    while (!failures) {
        for (int i = 0; i < 20; i++) OK(launch(function, stream, 2 * US));
        OK(launch(function, stream, 9 * MS));
        nanosleep(&pause, NULL);
    }
}
static void in_contexts(void)
{
    static CUcontext all[CONTEXTS];
    static CUfunction functions[CONTEXTS];
    for (int i = 0; i < CONTEXTS; i++) {
        CUmodule its_module;
        OK(cuCtxCreate_v2(&all[i], 0, device));
        OK(cuModuleLoadData(&its_module, SPIN_PTX));
        OK(cuModuleGetFunction(&functions[i], its_module, "vcuda_spin_ns"));
    }
    while (!failures)
        for (int i = 0; i < CONTEXTS; i++) {
            OK(cuCtxSetCurrent(all[i]));
            for (int j = 0; j < 10; j++) OK(launch(functions[i], NULL, MS));
            OK(cuCtxSynchronize());
        }
}
/* The stream of a context of its own, while the primary one is current. */
static void in_other_context(int by_library)
{
    CUcontext other;
    CUmodule its_module;
    CUlibrary library;
    CUkernel kernel;
    OK(cuCtxCreate_v2(&other, 0, device));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    if (by_library) {
        OK(cuLibraryLoadData(&library, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0));
        OK(cuLibraryGetKernel(&kernel, library, "vcuda_spin_ns"));
        function = (CUfunction)kernel;
    } else {
        OK(cuModuleLoadData(&its_module, SPIN_PTX));
        OK(cuModuleGetFunction(&function, its_module, "vcuda_spin_ns"));
    }
    OK(cuCtxSetCurrent(context));
}
static void in_green_context(void)
{
    unsigned long long resource[32] = {0}; /* CUdevResource, 144 bytes */
    void *description, *green;
    OK(cuDeviceGetDevResource(device, resource, 1));
    OK(cuDevResourceGenerateDesc(&description, resource, 1));
    OK(cuGreenCtxCreate(&green, description, device, 1));
    OK(cuGreenCtxStreamCreate(&stream, green, STREAM_NON_BLOCKING, 0));
}
static void idle(void)
{
    struct timespec pause = {3600, 0};
    for (;;) nanosleep(&pause, NULL);
}
int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "plain";
    const uint64_t ns = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    setup();
    function = spin;
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    if (!strcmp(how, "other")) in_other_context(0);
    else if (!strcmp(how, "other-kernel")) in_other_context(1);
    else if (!strcmp(how, "green")) in_green_context();
    printf("started\n");
    fflush(stdout);
    if (!strcmp(how, "grow-sync")) grow(0);
    else if (!strcmp(how, "grow-poll")) grow(1);
    else if (!strcmp(how, "streams")) on_streams(1);
    else if (!strcmp(how, "streams-ahead")) on_streams(0);
    else if (!strcmp(how, "streams-crowded")) on_crowded_streams();
    else if (!strcmp(how, "confined")) leave_address_space(8 << 20);
    else if (!strcmp(how, "threads")) on_threads(STREAMS, MS);
    else if (!strcmp(how, "threads-long")) on_threads(32, 50 * MS);
    else if (!strcmp(how, "captured")) captured_stream();
    else if (!strcmp(how, "captured-grow")) beside_captures();
    else if (!strcmp(how, "gated")) gated();
    else if (!strcmp(how, "contexts")) in_contexts();
    else if (!strcmp(how, "pauses")) with_pauses();
    else if (!strcmp(how, "short")) short_kernels(0);
    else if (!strcmp(how, "short-paused")) short_kernels(50);
    else if (!strcmp(how, "hidden")) hidden();
    else if (!strcmp(how, "savings")) after_savings(stream);
    else if (!strcmp(how, "savings-thread")) after_savings(STREAM_PER_THREAD);
    else if (!strcmp(how, "burst"))
        for (int i = 0; i < 4; i++) OK(launch(function, stream, ns));
    if (!strcmp(how, "burst") || !strcmp(how, "idle")) idle();
    while (!failures && !strcmp(how, "each")) {
        OK(launch(function, stream, ns));
        OK(cuStreamSynchronize(stream));
    }
    while (!failures && !strcmp(how, "ahead")) OK(launch(function, stream, MS));
    while (!failures) {
        for (int i = 0; i < 8; i++) OK(launch(function, stream, MS));
        OK(cuStreamSynchronize(stream));
    }
    return 1;
}
