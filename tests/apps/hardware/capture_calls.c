/* Which calls of another thread end a capture that is open: each call, for each mode of the capture (global, thread_local,
 * relaxed) and with the calling thread in its normal mode and in relaxed mode. Prints CALL_cG_tG_status, and _end: what
 * cuStreamEndCapture answered, 0 if the capture lived. docs/hardware.md, "calls during a capture". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream, CUcontext *))                                                   \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, 11020, (CUmemoryPool *, CUdevice))                                       \
    X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, (CUdevice, int, void *))                      \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000, (void *, int, CUdeviceptr))                                  \
    X(cuDeviceGetUuid, cuDeviceGetUuid, 9020, (CUuuid *, CUdevice))
#include "nvml.h"

static CUstream captured, other;
static CUevent first, second;
static CUmemoryPool pool;
static CUdeviceptr memory;
static int has_nvml;

#define CALL(name, ...)                                                                                                \
    static CUresult name(void) { return __VA_ARGS__; }
static float ms;
static uint64_t word;
static size_t size_a, size_b;
static int number;
static unsigned flags;
static void *handle;
static CUdeviceptr made;
CALL(event_query, cuEventQuery(first))
CALL(event_elapsed, cuEventElapsedTime(&ms, first, second))
CALL(event_create, cuEventCreate((CUevent *)&handle, 0))
CALL(event_record_other, cuEventRecord(first, other))
CALL(event_synchronize, cuEventSynchronize(first))
CALL(stream_get_ctx, cuStreamGetCtx(other, (CUcontext *)&handle))
CALL(stream_get_flags, cuStreamGetFlags(other, &flags))
CALL(stream_query, cuStreamQuery(other))
CALL(stream_synchronize, cuStreamSynchronize(other))
CALL(stream_is_capturing, cuStreamIsCapturing(other, &number))
CALL(stream_is_capturing_legacy, cuStreamIsCapturing(NULL, &number))
CALL(pool_attribute, cuMemPoolGetAttribute(pool, 5, &word))
CALL(pool_trim, cuMemPoolTrimTo(pool, (size_t)1 << 40))
CALL(device_pool, cuDeviceGetMemPool((CUmemoryPool *)&handle, device))
CALL(graph_attribute, cuDeviceGetGraphMemAttribute(device, 2, &word))
CALL(mem_get_info, cuMemGetInfo_v2(&size_a, &size_b))
CALL(mem_alloc, cuMemAlloc_v2(&made, 512))
CALL(mem_alloc_async_other, cuMemAllocAsync(&made, MIB, other))
CALL(mem_address_range, cuMemGetAddressRange_v2(&made, &size_a, memory))
CALL(pointer_attribute, cuPointerGetAttribute(&word, 2, memory))
CALL(ctx_set_current, cuCtxSetCurrent(context))
CALL(ctx_get_device, cuCtxGetDevice(&number))
CALL(ctx_push_pop, cuCtxPushCurrent_v2(context) | cuCtxPopCurrent_v2((CUcontext *)&handle))
CALL(primary_state, cuDevicePrimaryCtxGetState(device, &flags, &number))
CALL(primary_retain, cuDevicePrimaryCtxRetain((CUcontext *)&handle, device))
CALL(func_attribute, cuFuncGetAttribute(&number, 0, spin))
CALL(launch_other, launch(work, other, 1))
CALL(module_load, cuModuleLoadData((CUmodule *)&handle, SPIN_PTX))
static CUresult optional_call(const char *symbol, void *a, void *b)
{
    CUresult (*call)(void *, void *) = (CUresult(*)(void *, void *))optional(symbol);
    return call ? call(a, b) : -1;
}
CALL(stream_get_id, optional_call("cuStreamGetId", other, &word))
CALL(stream_get_device, optional_call("cuStreamGetDevice", other, &number))
CALL(func_get_name, optional_call("cuFuncGetName", &handle, spin))
static CUresult nvml_memory(void)
{
    NvmlMemory m;
    return has_nvml ? nvmlDeviceGetMemoryInfo(nvml_device, &m) : -1;
}
#define ROW(name) {#name, name}
static const struct { const char *name; CUresult (*call)(void); } CALLS[] = {
    ROW(event_query), ROW(event_elapsed), ROW(event_create), ROW(event_record_other), ROW(event_synchronize),
    ROW(stream_get_ctx), ROW(stream_get_flags), ROW(stream_get_id), ROW(stream_get_device), ROW(stream_query),
    ROW(stream_synchronize), ROW(stream_is_capturing), ROW(stream_is_capturing_legacy), ROW(pool_attribute),
    ROW(pool_trim), ROW(device_pool), ROW(graph_attribute), ROW(mem_get_info), ROW(mem_alloc),
    ROW(mem_alloc_async_other), ROW(mem_address_range), ROW(pointer_attribute), ROW(ctx_set_current),
    ROW(ctx_get_device), ROW(ctx_push_pop), ROW(primary_state), ROW(primary_retain), ROW(func_attribute),
    ROW(func_get_name), ROW(launch_other), ROW(module_load), ROW(nvml_memory)};

static struct { CUresult (*call)(void); int mode; CUresult status; } question;
static void *ask(void *unused)
{
    int mode = question.mode;
    (void)unused;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    question.status = question.call();
    return NULL;
}
static void one(const char *name, int capture_mode, int thread_mode)
{
    static const char letters[] = "GTR";
    char figure[96];
    CUgraph graph = NULL;
    OK(cuEventRecord(first, other));
    OK(cuEventRecord(second, other));
    OK(cuStreamSynchronize(other));
    CUresult code = cuStreamBeginCapture_v2(captured, capture_mode);
    if (code) {
        printf("FAIL begin %d\n", code);
        failures++;
        return;
    }
    OK(launch(work, captured, 1));
    question.mode = thread_mode;
    in_thread(ask, NULL);
    CUresult end = cuStreamEndCapture(captured, &graph);
    if (graph) cuGraphDestroy(graph);
    snprintf(figure, sizeof figure, "%s_c%c_t%c_status", name, letters[capture_mode], letters[thread_mode]);
    report(figure, question.status, "CUresult");
    snprintf(figure, sizeof figure, "%s_c%c_t%c_end", name, letters[capture_mode], letters[thread_mode]);
    report(figure, end, "CUresult");
    cuStreamSynchronize(other);
}
int main(int argc, char **argv)
{
    setup();
    /* "with-nvml": the row nvml_memory is asked too. */
    if (argc > 1 && !strcmp(argv[1], "with-nvml")) {
        nvml_open();
        has_nvml = 1;
    }
    OK(cuStreamCreate(&captured, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&first, 0));
    OK(cuEventCreate(&second, 0));
    OK(cuMemAlloc_v2(&memory, MIB));
    OK(cuDeviceGetMemPool(&pool, device));
    OK(cuMemAllocAsync(&made, MIB, other));
    OK(cuMemFreeAsync(made, other));
    OK(cuCtxSynchronize());
    for (unsigned i = 0; i < sizeof CALLS / sizeof *CALLS; i++) {
        question.call = CALLS[i].call;
        for (int capture_mode = CAPTURE_GLOBAL; capture_mode <= CAPTURE_RELAXED; capture_mode++) {
            one(CALLS[i].name, capture_mode, CAPTURE_GLOBAL);
            one(CALLS[i].name, capture_mode, CAPTURE_RELAXED);
        }
    }
    return failures != 0;
}
