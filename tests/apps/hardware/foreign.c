/* What works where another context, or none, is current: queries of events, launches into a stream of another context,
 * a green context's stream. docs/hardware.md, "stream's context", "events without a context", "green contexts". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream, CUcontext *))                                                   \
    X(cuCtxGetId, cuCtxGetId, 12000, (CUcontext, unsigned long long *))
#include "measure.h"

static CUevent events[2];
static void *without_context(void *unused)
{
    float ms;
    int mode = CAPTURE_RELAXED;
    CUcontext current = (CUcontext)1;
    (void)unused;
    OK(cuCtxGetCurrent(&current));
    report("no_context_current", current != NULL, "boolean");
    report("no_context_query", cuEventQuery(events[0]), "CUresult");
    report("no_context_elapsed", cuEventElapsedTime(&ms, events[0], events[1]), "CUresult");
    report("no_context_synchronize", cuEventSynchronize(events[0]), "CUresult");
    report("no_context_exchange_mode", cuThreadExchangeStreamCaptureMode(&mode), "CUresult");
    return NULL;
}
static void other_context(void)
{
    CUcontext a, b, told = NULL;
    CUstream stream;
    CUmodule module_a;
    CUfunction function;
    CUlibrary library;
    CUkernel kernel;
    CUevent event_a, event_b;
    OK(cuCtxCreate_v2(&a, 0, device));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event_a, 0));
    OK(cuModuleLoadData(&module_a, SPIN_PTX));
    OK(cuModuleGetFunction(&function, module_a, "vcuda_work"));
    OK(cuLibraryLoadData(&library, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "vcuda_work"));
    OK(cuCtxCreate_v2(&b, 0, device));
    OK(cuEventCreate(&event_b, 0));
    report("other_launch_function", launch(function, stream, 1), "CUresult");
    report("other_launch_kernel", launch((CUfunction)kernel, stream, 1), "CUresult");
    report("other_stream_get_ctx", cuStreamGetCtx(stream, &told), "CUresult");
    report("other_stream_ctx_same", told == a, "boolean");
    report("other_record_own_event", cuEventRecord(event_a, stream), "CUresult");
    report("other_record_foreign_event", cuEventRecord(event_b, stream), "CUresult");
    report("other_query", cuEventQuery(event_a) % NOT_READY, "CUresult");
    report("other_synchronize", cuStreamSynchronize(stream), "CUresult");
    CUdevice of_stream = -1;
    OPTIONAL(cuStreamGetDevice, (CUstream, CUdevice *));
    if (cuStreamGetDevice) report("other_stream_get_device", cuStreamGetDevice(stream, &of_stream), "CUresult");
    else not_measured("other_stream_get_device", "not-in-this-driver");
    OK(cuCtxDestroy_v2(b));
    OK(cuCtxDestroy_v2(a));
    OK(cuCtxSetCurrent(context));
}

static CUcontext green_as_context;
static void *second_thread(void *unused)
{
    (void)unused;
    report("green_current_in_second_thread", cuCtxSetCurrent(green_as_context), "CUresult");
    return NULL;
}
static void green_context(void)
{
    unsigned long long resource[32] = {0}; /* CUdevResource, 144 bytes */
    void *description, *green;
    CUstream stream;
    CUcontext told = NULL;
    unsigned long long green_id = 0, told_id = 0;
    OPTIONAL(cuDeviceGetDevResource, (CUdevice, void *, int));
    OPTIONAL(cuDevResourceGenerateDesc, (void **, void *, unsigned));
    OPTIONAL(cuGreenCtxCreate, (void **, void *, CUdevice, unsigned));
    OPTIONAL(cuGreenCtxStreamCreate, (CUstream *, void *, unsigned, int));
    OPTIONAL(cuCtxFromGreenCtx, (CUcontext *, void *));
    if (!cuGreenCtxStreamCreate || !cuDeviceGetDevResource || !cuDevResourceGenerateDesc || !cuGreenCtxCreate || !cuCtxFromGreenCtx) {
        not_measured("green_create", "not-in-this-driver");
        return;
    }
    CUresult code = cuDeviceGetDevResource(device, resource, 1);
    if (!code) code = cuDevResourceGenerateDesc(&description, resource, 1);
    if (!code) code = cuGreenCtxCreate(&green, description, device, 1);
    report("green_create", code, "CUresult");
    if (code) return;
    OK(cuGreenCtxStreamCreate(&stream, green, STREAM_NON_BLOCKING, 0));
    OK(cuCtxFromGreenCtx(&green_as_context, green));
    report("green_stream_get_ctx", cuStreamGetCtx(stream, &told), "CUresult");
    report("green_stream_ctx_same", told == green_as_context, "boolean");
    if (!cuCtxGetId(green_as_context, &green_id) && told && !cuCtxGetId(told, &told_id))
        report("green_stream_ctx_same_id", green_id == told_id, "boolean");
    report("green_launch_with_primary_current", launch(work, stream, 1), "CUresult");
    report("green_synchronize", cuStreamSynchronize(stream), "CUresult");
    report("green_set_current", cuCtxSetCurrent(green_as_context), "CUresult");
    in_thread(second_thread, NULL);
    OK(cuCtxSetCurrent(context));
}
int main(void)
{
    CUstream stream;
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        OK(cuEventCreate(&events[i], 0));
        OK(cuEventRecord(events[i], stream));
    }
    OK(cuCtxSynchronize());
    in_thread(without_context, NULL);
    other_context();
    green_context();
    return failures != 0;
}
