/* A thread captures in global mode while another allocates from a pool, asks for memory and launches: the capture must end
 * with 0, as a tenant too. docs/hardware.md, "calls during a capture". */
#include "nvml.h"

static void *neighbour(void *unused)
{
    int mode = CAPTURE_RELAXED;
    CUstream stream;
    CUdeviceptr small, large;
    size_t free_bytes, total;
    (void)unused;
    OK(cuCtxSetCurrent(context));
    /* In relaxed mode none of these calls is the application's fault. */
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&small, 4 * MIB, stream));
    OK(cuMemAllocAsync(&large, 64 * MIB, stream));
    OK(cuMemFreeAsync(small, stream));
    OK(cuMemFreeAsync(large, stream));
    for (int i = 0; i < 100; i++) OK(launch(work, stream, 100));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    OK(cuStreamSynchronize(stream));
    /* The shim's worker asks about memory and settles launches meanwhile. */
    usleep(600000);
    gpu_used();
    return NULL;
}
int main(void)
{
    CUstream stream;
    CUgraph graph = NULL;
    CUdeviceptr p;
    nvml_open();
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuMemAllocAsync(&p, MIB, stream));
    OK(cuMemFreeAsync(p, stream));
    for (int i = 0; i < 100; i++) OK(launch(work, stream, 1000));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL));
    OK(launch(work, stream, 1));
    in_thread(neighbour, NULL);
    CUresult end = cuStreamEndCapture(stream, &graph);
    report("end_of_capture", end, "CUresult");
    return failures != 0 || end != SUCCESS;
}
