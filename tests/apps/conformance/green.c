/* Green contexts: a part of a device's multiprocessors with streams of its own. CUDA Driver API: "Green Contexts". */
typedef struct Resource {
    unsigned type;
    unsigned char padding[92];
    union {
        struct { unsigned count, smallest, alignment, flags, domain; } sm;
        unsigned char bytes[40];
    };
    struct Resource *next;
} Resource;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, Resource *, unsigned))                         \
    X(cuCtxGetDevResource, cuCtxGetDevResource, 12040, (CUcontext, Resource *, unsigned))                              \
    X(cuGreenCtxGetDevResource, cuGreenCtxGetDevResource, 12040, (struct Green *, Resource *, unsigned))               \
    X(cuDevSmResourceSplitByCount, cuDevSmResourceSplitByCount, 12040,                                                 \
      (Resource *, unsigned *, const Resource *, Resource *, unsigned, unsigned))                                      \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (struct Desc **, Resource *, unsigned))             \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (struct Green **, struct Desc *, CUdevice, unsigned))                 \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (struct Green *))                                                   \
    X(cuCtxFromGreenCtx, cuCtxFromGreenCtx, 12040, (CUcontext *, struct Green *))                                      \
    X(cuGreenCtxRecordEvent, cuGreenCtxRecordEvent, 12040, (struct Green *, CUevent))                                  \
    X(cuGreenCtxWaitEvent, cuGreenCtxWaitEvent, 12040, (struct Green *, CUevent))                                      \
    X(cuGreenCtxStreamCreate, cuGreenCtxStreamCreate, 12050, (CUstream *, struct Green *, unsigned, int))              \
    X(cuStreamGetGreenCtx, cuStreamGetGreenCtx, 12040, (CUstream, struct Green **))                                    \
    X(cuCtxRecordEvent, cuCtxRecordEvent, 12050, (CUcontext, CUevent))                                                 \
    X(cuCtxWaitEvent, cuCtxWaitEvent, 12050, (CUcontext, CUevent))
struct Desc;
struct Green;
#include "../driver.h"
#include "answers.h"
enum { SM = 1, DEFAULT_STREAM = 1, INVALID_RESOURCE_TYPE = 914, INVALID_RESOURCE_CONFIGURATION = 915, STREAM_DETACHED = 917 };
static size_t free_now(void)
{
    size_t left = 0, total;
    OK(cuMemGetInfo_v2(&left, &total));
    return left;
}
static int is_of_ended_context(CUresult code)
{
    return code == STREAM_DETACHED || (code == CONTEXT_IS_DESTROYED && !is_simulated());
}

int main(void)
{
    setup();
    Resource all, rest, of_context, again, groups[2];
    OK(cuDeviceGetDevResource(device, &all, SM));
    OK(cuCtxGetDevResource(context, &of_context, SM));
    CHECK(all.type == SM && all.sm.count > 0 && of_context.sm.count == all.sm.count);
    EXPECT(INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(device, &rest, 7));
    EXPECT(INVALID_VALUE, cuDeviceGetDevResource(device, NULL, SM));
    unsigned possible = 0, count = 2, least = all.sm.count / 4;
    OK(cuDevSmResourceSplitByCount(NULL, &possible, &all, NULL, 0, least));
    CHECK(possible >= 2);
    EXPECT(INVALID_RESOURCE_CONFIGURATION, cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, all.sm.count + 1));
    count = 2;
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, least));
    CHECK(count == 2 && groups[0].sm.count >= least && groups[1].sm.count == groups[0].sm.count);
    CHECK(rest.sm.count == all.sm.count - 2 * groups[0].sm.count);
    struct Desc *desc = NULL;
    EXPECT(INVALID_VALUE, cuDevResourceGenerateDesc(&desc, NULL, 1));
    if (is_simulated()) EXPECT(INVALID_VALUE, cuDevResourceGenerateDesc(&desc, groups, 0)); /* an H200's driver crashes */
    OK(cuDevResourceGenerateDesc(&desc, groups, 1));
    struct Green *green = NULL, *found = NULL;
    if (is_simulated()) {
        EXPECT(INVALID_VALUE, cuGreenCtxCreate(NULL, desc, device, DEFAULT_STREAM));
        EXPECT(INVALID_VALUE, cuGreenCtxCreate(&green, NULL, device, DEFAULT_STREAM));
    }
    CHECK(cuGreenCtxCreate(&green, desc, 1000, DEFAULT_STREAM) == INVALID_DEVICE && green == NULL);
    size_t before = free_now();
    OK(cuGreenCtxCreate(&green, desc, device, DEFAULT_STREAM));
    CHECK(free_now() <= before);
    size_t made = free_now();
    tell("green_context", before - made, "bytes");
    tell("green_multiprocessors", groups[0].sm.count, "multiprocessors");
    OK(cuGreenCtxGetDevResource(green, &again, SM));
    CHECK(again.sm.count == groups[0].sm.count);
    CUcontext as_context = NULL, got = NULL;
    OK(cuCtxFromGreenCtx(&as_context, green));
    CHECK(as_context && as_context != context);
    if (is_simulated()) EXPECT(INVALID_CONTEXT, cuCtxFromGreenCtx(&got, NULL));
    CUstream stream = NULL, other = NULL;
    EXPECT(INVALID_VALUE, cuGreenCtxStreamCreate(&stream, green, 0, 0)); /* must be non-blocking */
    OK(cuGreenCtxStreamCreate(&stream, green, STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetGreenCtx(stream, &found));
    CHECK(found == green);
    OK(cuStreamCreate(&other, STREAM_NON_BLOCKING));
    OK(cuStreamGetGreenCtx(other, &found));
    CHECK(found == NULL);
    /* Functions and memory are the primary context's. */
    CUdeviceptr p = 0;
    OK(cuCtxSetCurrent(as_context));
    OK(cuMemAlloc_v2(&p, 1 << 20));
    OK(launch(spin, stream, 2000000));
    OK(cuMemsetD8Async(p, 5, 1 << 20, stream));
    /* An event of the whole green context, and one of its primary context. */
    CUevent event, whole;
    OK(cuEventCreate(&event, EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&whole, EVENT_DISABLE_TIMING));
    OK(cuGreenCtxRecordEvent(green, event));
    OK(cuCtxRecordEvent(context, whole));
    OK(cuCtxWaitEvent(context, event));
    OK(cuGreenCtxWaitEvent(green, whole));
    OK(launch(spin, other, 1000));
    OK(cuStreamSynchronize(other)); /* after what the event captured */
    OK(cuEventQuery(event));
    OK(cuEventSynchronize(whole));
    OK(cuStreamQuery(stream));
    OK(cuCtxSynchronize());
    OK(cuCtxSetCurrent(context));
    /* Its end leaves memory and other streams alone; its own streams can only be destroyed. */
    OK(cuGreenCtxDestroy(green));
    CHECK(free_now() >= made - (2u << 20));
    /* Documented is STREAM_DETACHED; an H200 (580.159.04) says that the context is destroyed, also to cuStreamDestroy. */
    CHECK(is_of_ended_context(cuStreamQuery(stream)));
    CHECK(is_of_ended_context(launch(spin, stream, 1)));
    CUresult code = cuStreamDestroy_v2(stream);
    CHECK(code == SUCCESS || (code == CONTEXT_IS_DESTROYED && !is_simulated()));
    unsigned char last = 0;
    OK(cuMemcpyDtoH_v2(&last, p + (1 << 20) - 1, 1));
    CHECK(last == 5);
    OK(cuMemFree_v2(p));
    size_t after = free_now(); /* to the granularity of what is measured; an H200 keeps more */
    CHECK((after + (2u << 20) >= before && after <= before + (2u << 20)) || !is_simulated());
    OK(launch(spin, other, 1000));
    OK(cuStreamSynchronize(other));
    /* It keeps the primary context alive. */
    OK(cuGreenCtxCreate(&green, desc, device, DEFAULT_STREAM));
    OK(cuDevicePrimaryCtxRelease_v2(device));
    unsigned flags;
    int active = 0;
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    CHECK(active == 1);
    OK(cuGreenCtxDestroy(green));
    OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    CHECK(active == 0);
    return finish("green");
}
