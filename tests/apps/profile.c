/* What differs between drivers, asked one by one: profile WHAT. Prints one line.
 *   capture MODE  a global capture; meanwhile another thread in MODE asks an attribute of a pool: "call CODE end CODE"
 *   green         a green context that is current here, made current by another thread: "second CODE"
 *   blocks        a kernel of an hour is launched: "query CODE" of its stream; of a tenth of a second with "blocks short"
 *   pair          two events with nothing between them: "pair NS"
 *   devices       "devices CUDA NVML", the numbers of GPUs
 * CUDA Driver API: "Stream Management", "Green Contexts", "Event Management". */
typedef struct { unsigned char bytes[144]; } Resource;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, Resource *, unsigned))                         \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (struct Desc **, Resource *, unsigned))             \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (struct Green **, struct Desc *, CUdevice, unsigned))                 \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, (CUcontext *, struct Green *))
struct Desc;
struct Green;
#include "driver.h"
#include <pthread.h>
static int mode;
static CUresult code;
static CUmemoryPool pool;
static CUcontext green_context;
static void *asks(void *unused)
{
    unsigned long long value;
    OK(cuCtxSetCurrent(context));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    code = cuMemPoolGetAttribute(pool, 5 /* reserved now */, &value);
    return unused;
}
static void *takes(void *unused)
{
    code = cuCtxSetCurrent(green_context);
    return unused;
}
static void in_thread(void *(*body)(void *))
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, NULL));
    pthread_join(thread, NULL);
}
static void capture(const char *word)
{
    CUstream s;
    CUgraph graph;
    mode = atoi(word);
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    in_thread(asks);
    printf("call %d end %d\n", code, cuStreamEndCapture(s, &graph));
}
static void green(void)
{
    Resource all;
    struct Desc *desc;
    struct Green *made;
    OK(cuDeviceGetDevResource(device, &all, 1));
    OK(cuDevResourceGenerateDesc(&desc, &all, 1));
    OK(cuGreenCtxCreate(&made, desc, device, 1));
    OK(cuCtxFromGreenCtx(&green_context, made));
    OK(cuCtxPushCurrent_v2(green_context));
    in_thread(takes);
    printf("second %d", code);
    OK(cuCtxPopCurrent_v2(NULL));
    in_thread(takes);
    printf(" later %d\n", code);
}
static void blocks(uint64_t ns)
{
    CUstream s;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(launch(spin, s, ns));
    printf("query %d\n", cuStreamQuery(s));
    fflush(stdout);
    _Exit(failures);
}
static void pair(void)
{
    CUevent a, b;
    float ms;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    /* Both wait behind a kernel of a second, so that the time between the two calls is not measured, also on a busy machine. */
    OK(launch(spin, NULL, 1000000000));
    OK(cuEventRecord(a, NULL));
    OK(cuEventRecord(b, NULL));
    OK(cuCtxSynchronize());
    OK(cuEventElapsedTime(&ms, a, b));
    printf("pair %.0f\n", ms * 1e6);
}
static void devices(void)
{
    int cuda = 0;
    unsigned nvml = 0;
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    OK(((int (*)(void))dlsym(lib, "nvmlInit_v2"))());
    OK(((int (*)(unsigned *))dlsym(lib, "nvmlDeviceGetCount_v2"))(&nvml));
    OK(cuDeviceGetCount(&cuda));
    printf("devices %d %u\n", cuda, nvml);
}
int main(int argc, char **argv)
{
    setup();
    (void)argc;
    switch (argv[1][0]) {
    case 'c': capture(argv[2]); break;
    case 'g': green(); break;
    case 'b': blocks(argv[2] ? 100000000ull : 3600000000000ull); break;
    case 'p': pair(); break;
    default: devices();
    }
    return failures ? 1 : 0;
}
