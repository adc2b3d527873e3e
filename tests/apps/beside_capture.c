/* What calls answer while a stream is captured, and how the capture ends: each call in a capture of its own, for each mode of
 * the capture and of the calling thread, from another thread and from the capturing one, while a third thread works. It prints
 * status codes only, so that its output is the same with and without limits.
 * CUDA Driver API: cuStreamBeginCapture, cuThreadExchangeStreamCaptureMode. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (IpcHandle *, CUdeviceptr))                                          \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                   \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))             \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))                                                   \
    X(cuCtxGetLimit, cuCtxGetLimit, 3010, (size_t *, int))                                                             \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010, (int, size_t))
typedef struct { char bytes[64]; } IpcHandle;
#include "driver.h"
#include <pthread.h>
#include <unistd.h>
#define MIB (1ul << 20)
#define FAR ((size_t)1 << 40) /* more than any GPU has */

static CUstream captured, other, busy;
static CUmemoryPool pool, own_pool;
static CUgraph memory_graph;
static CUevent event;
static IpcHandle foreign;
static CUdeviceptr linear, elsewhere;
static int (*nvml_init)(void), (*nvml_handle)(unsigned, void **), (*nvml_memory)(void *, unsigned long long *),
    (*nvml_processes)(void *, unsigned *, void *);

/* The codes of an operation's calls, as one number. */
static unsigned long codes;
static CUresult say(CUresult code)
{
    codes = codes * 1000 + (unsigned long)code;
    return code;
}
#define DO(call) (say(call) == SUCCESS)

static const AllocationProp HERE = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};

static void allocates(void)
{
    CUdeviceptr p;
    if (DO(cuMemAlloc_v2(&p, 3 * MIB))) DO(cuMemFree_v2(p));
}
static void manages(void)
{
    CUdeviceptr p;
    if (DO(cuMemAllocManaged(&p, 3 * MIB, 1))) DO(cuMemFree_v2(p));
}
static void pitches(void)
{
    CUdeviceptr p;
    size_t row;
    if (DO(cuMemAllocPitch_v2(&p, &row, 1000, 1000, 4))) DO(cuMemFree_v2(p));
}
static void makes_arrays(void)
{
    CUarray array;
    CUmipmappedArray mipmap;
    ArrayDescriptor flat = {64, 64, 0x20, 1};
    Array3DDescriptor levels = {64, 64, 0, 0x20, 1, 0};
    if (DO(cuArrayCreate_v2(&array, &flat))) DO(cuArrayDestroy(array));
    if (DO(cuMipmappedArrayCreate(&mipmap, &levels, 3))) DO(cuMipmappedArrayDestroy(mipmap));
}
static void allocates_in_order(void)
{
    CUdeviceptr p;
    for (int i = 0; i < 3; i++)
        if (DO(cuMemAllocAsync(&p, (size_t)i * 40 * MIB + MIB, other))) DO(cuMemFreeAsync(p, other));
}
static void allocates_from_a_pool(void)
{
    CUdeviceptr p;
    if (DO(cuMemAllocFromPoolAsync(&p, 5 * MIB, own_pool, other))) DO(cuMemFreeAsync(p, other));
}
/* Relaxed: what exceeds a quota is refused before the driver could call it unsafe. */
static void is_refused(void)
{
    CUdeviceptr p;
    int mode = CAPTURE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    DO(cuMemAllocAsync(&p, FAR, other));
    DO(cuMemAllocFromPoolAsync(&p, FAR, own_pool, other));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
}
static void makes_pools(void)
{
    PoolProps properties = {.alloc_type = 1, .location = {1, 0}};
    CUmemoryPool made;
    CUdeviceptr p;
    if (!DO(cuMemPoolCreate(&made, &properties))) return;
    if (DO(cuMemAllocFromPoolAsync(&p, MIB, made, other))) DO(cuMemFreeAsync(p, other));
    DO(cuMemPoolDestroy(made));
}
static void tunes_pools(void)
{
    uint64_t keep = 64 * MIB;
    DO(cuMemPoolSetAttribute(own_pool, 4, &keep));
    DO(cuMemPoolTrimTo(own_pool, 0));
    DO(cuMemPoolTrimTo(pool, 0));
}
static void asks_pools(void)
{
    uint64_t bytes;
    DO(cuMemPoolGetAttribute(own_pool, 5, &bytes));
}
static void frees_linear_in_order(void)
{
    size_t left, total;
    if (linear && DO(cuMemFreeAsync(linear, other))) linear = 0;
    DO(cuMemGetInfo_v2(&left, &total));
}
static void maps(void)
{
    CUmemHandle handle, again;
    CUdeviceptr p;
    int file = -1;
    if (!DO(cuMemCreate(&handle, 2 * MIB, &HERE, 0))) return;
    if (DO(cuMemAddressReserve(&p, 2 * MIB, 0, 0, 0))) {
        if (DO(cuMemMap(p, 2 * MIB, 0, handle, 0))) DO(cuMemUnmap(p, 2 * MIB));
        DO(cuMemAddressFree(p, 2 * MIB));
    }
    if (DO(cuMemExportToShareableHandle(&file, handle, 1, 0))) {
        if (DO(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, 1))) DO(cuMemRelease(again));
        close(file);
    }
    DO(cuMemRelease(handle));
}
static void shares(void)
{
    IpcHandle handle;
    CUdeviceptr p;
    DO(cuIpcGetMemHandle(&handle, elsewhere));
    if (DO(cuIpcOpenMemHandle_v2(&p, foreign, 1))) DO(cuIpcCloseMemHandle(p));
}
static void asks_for_memory(void)
{
    size_t left, total;
    DO(cuMemGetInfo_v2(&left, &total));
    DO(cuDeviceTotalMem_v2(&total, device));
}
static void asks_nvml(void)
{
    unsigned char processes[64 * 64];
    unsigned long long memory[3];
    unsigned count = 64;
    void *gpu;
    DO(nvml_handle(0, &gpu));
    DO(nvml_memory(gpu, memory));
    nvml_processes(gpu, &count, processes); /* a tenant is told its own processes where a driver tells none */
}
static void launches(void)
{
    for (int i = 0; i < 140; i++)
        if (launch(spin, other, 3000)) say(1);
    DO(launch(spin, other, 300000));
    DO(cuMemsetD8Async(elsewhere, 1, MIB, other));
    DO(cuMemcpyDtoDAsync_v2(elsewhere, elsewhere + 2 * MIB, MIB, other));
    DO(cuEventRecord(event, other));
}
static void launches_unknown_kernels(void)
{
    CUlibrary library;
    CUkernel kernel = NULL;
    CUfunction function = NULL;
    CUmodule more;
    if (DO(cuModuleLoadData(&more, SPIN_PTX))) {
        if (DO(cuModuleGetFunction(&function, more, "vcuda_spin_ns"))) DO(launch(function, other, 1000));
        DO(cuModuleUnload(more));
    }
    if (DO(cuLibraryLoadData(&library, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0))) {
        if (DO(cuLibraryGetKernel(&kernel, library, "vcuda_work"))) DO(launch((CUfunction)kernel, other, 10));
        DO(cuLibraryUnload(library));
    }
}
static void runs_graphs(void)
{
    CUgraphExec exec;
    if (!DO(cuGraphInstantiateWithFlags(&exec, memory_graph, 0))) return;
    DO(cuGraphLaunch(exec, other));
    DO(cuGraphLaunch(exec, other));
    DO(cuGraphExecDestroy(exec));
    DO(cuDeviceGraphMemTrim(device));
}
static void makes_contexts(void)
{
    CUcontext made, now;
    if (DO(cuCtxCreate_v2(&made, 0, device))) DO(cuCtxDestroy_v2(made));
    if (DO(cuDevicePrimaryCtxRetain(&now, device))) DO(cuDevicePrimaryCtxRelease_v2(device));
    DO(cuCtxGetCurrent(&now));
    say(now != context);
}
static void sets_limits(void)
{
    size_t stack = 0;
    if (DO(cuCtxGetLimit(&stack, 0))) DO(cuCtxSetLimit(0, 2 * stack)), DO(cuCtxSetLimit(0, stack));
}
static void makes_streams(void)
{
    CUstream stream;
    if (!DO(cuStreamCreate(&stream, STREAM_NON_BLOCKING))) return;
    DO(launch(spin, stream, 1000));
    DO(cuStreamDestroy_v2(stream));
}
static void waits_for_a_stream(void) { DO(cuStreamSynchronize(other)); }
static void waits_for_an_event(void) { DO(cuEventSynchronize(event)); }
static void copies_at_once(void) { DO(cuMemcpyDtoD_v2(elsewhere, elsewhere + 2 * MIB, MIB)); }
static void waits_for_the_context(void) { DO(cuCtxSynchronize()); }

#define OPERATIONS(X)                                                                                                  \
    X(allocates) X(manages) X(pitches) X(makes_arrays) X(allocates_in_order) X(allocates_from_a_pool) X(is_refused)    \
    X(makes_pools) X(tunes_pools) X(asks_pools) X(frees_linear_in_order) X(maps) X(shares) X(asks_for_memory)          \
    X(asks_nvml) X(launches) X(launches_unknown_kernels) X(runs_graphs) X(makes_contexts) X(sets_limits)               \
    X(makes_streams) X(waits_for_a_stream) X(waits_for_an_event) X(copies_at_once) X(waits_for_the_context)
static const struct { const char *name; void (*run)(void); } operations[] = {
#define X(name) {#name, name},
    OPERATIONS(X)
#undef X
};

static int now, thread_mode, mode_after;
static void operate(void)
{
    int mode = thread_mode;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    operations[now].run();
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    mode_after = mode;
}
static void *elsewhere_operates(void *unused)
{
    OK(cuCtxSetCurrent(context));
    operate();
    return unused;
}
static volatile int over;
static void *works(void *unused)
{
    CUdeviceptr p;
    size_t left, total;
    OK(cuCtxSetCurrent(context));
    while (!over && !failures) {
        OK(launch(spin, busy, 20000));
        int mode = CAPTURE_RELAXED; /* drivers take allocations for unsafe, and some the question */
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        OK(cuMemAllocAsync(&p, MIB, busy));
        OK(cuMemFreeAsync(p, busy));
        OK(cuMemGetInfo_v2(&left, &total));
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        usleep(300);
    }
    return unused;
}
static void try(int capture_mode, int of_thread, int is_other)
{
    CUgraph graph = NULL;
    pthread_t thread;
    if (!linear) OK(cuMemAlloc_v2(&linear, 4 * MIB));
    thread_mode = of_thread;
    codes = 0;
    OK(cuStreamBeginCapture_v2(captured, capture_mode));
    OK(launch(spin, captured, 1000));
    if (is_other) {
        pthread_create(&thread, NULL, elsewhere_operates, NULL);
        pthread_join(thread, NULL);
    } else {
        operate();
    }
    CUresult end = cuStreamEndCapture(captured, &graph);
    if (end == SUCCESS) OK(cuGraphDestroy(graph));
    printf(" %c%c%c %lu %d end %d;", "GTR"[capture_mode], is_other ? 'o' : 's', "GTR"[of_thread], codes, mode_after, end);
}
/* Exports memory until its reader is gone. */
static int peer(void)
{
    IpcHandle handle;
    CUdeviceptr p;
    char end;
    setup();
    OK(cuMemAlloc_v2(&p, 4 * MIB));
    OK(cuIpcGetMemHandle(&handle, p));
    CHECK(write(1, &handle, sizeof handle) == sizeof handle);
    (void)!read(0, &end, 1);
    return failures != 0;
}
static void meet_peer(char *program)
{
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    if (fork() == 0) {
        dup2(to[0], 0), dup2(from[1], 1);
        close(to[1]), close(from[0]);
        execl(program, program, "peer", NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    CHECK(read(from[0], &foreign, sizeof foreign) == sizeof foreign);
}
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "peer")) return peer();
    meet_peer(argv[0]);
    setup();
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    nvml_init = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
    nvml_handle = (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    nvml_memory = (int (*)(void *, unsigned long long *))dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    nvml_processes = (int (*)(void *, unsigned *, void *))dlsym(nvml, "nvmlDeviceGetComputeRunningProcesses_v3");
    OK(nvml_init());
    PoolProps properties = {.alloc_type = 1, .location = {1, 0}};
    CUdeviceptr p;
    OK(cuStreamCreate(&captured, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&busy, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, other));
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolCreate(&own_pool, &properties));
    OK(cuMemAlloc_v2(&elsewhere, 4 * MIB));
    OK(cuStreamBeginCapture_v2(other, CAPTURE_RELAXED));
    OK(cuMemAllocAsync(&p, 8 * MIB, other));
    OK(cuMemFreeAsync(p, other));
    OK(cuStreamEndCapture(other, &memory_graph));
    pthread_t third;
    pthread_create(&third, NULL, works, NULL);
    for (now = 0; now < (int)(sizeof operations / sizeof *operations); now++) {
        printf("%s:", operations[now].name);
        for (int capture_mode = 0; capture_mode < 3; capture_mode++) {
            for (int of_thread = 0; of_thread < 3; of_thread++) try(capture_mode, of_thread, 1);
            for (int of_thread = 0; of_thread < 3; of_thread += 2) try(capture_mode, of_thread, 0);
        }
        printf("\n");
    }
    over = 1;
    pthread_join(third, NULL);
    return finish("beside_capture");
}
