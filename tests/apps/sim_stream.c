/* Streams in depth: default streams, priorities, host functions, values in memory, launch checks.
 * CUDA Driver API: "Stream Management", "Stream Memory Operations", "Execution Control", "Stream synchronization
 * behavior". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuStreamGetPriority, cuStreamGetPriority, 5050, (CUstream, int *))                                               \
    X(cuStreamGetId, cuStreamGetId, 12000, (CUstream, unsigned long long *))                                           \
    X(cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream, CUcontext *))                                                   \
    X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, (int *, int *))                                  \
    X(cuStreamAddCallback, cuStreamAddCallback, 5000,                                                                  \
      (CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned))                                              \
    X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp, 11070, (CUstream, unsigned, void *, unsigned))                        \
    X(cuFuncSetBlockShape, cuFuncSetBlockShape, 2000, (CUfunction, int, int, int))                                     \
    X(cuParamSetSize, cuParamSetSize, 2000, (CUfunction, unsigned))                                                    \
    X(cuParamSetv, cuParamSetv, 2000, (CUfunction, int, void *, unsigned))                                             \
    X(cuLaunchGridAsync, cuLaunchGridAsync, 2000, (CUfunction, int, int, CUstream))                                    \
    X(cuStreamWaitValue64_v2, cuStreamWaitValue64, 11070, (CUstream, CUdeviceptr, uint64_t, unsigned))                 \
    X(cuStreamWriteValue64_v2, cuStreamWriteValue64, 11070, (CUstream, CUdeviceptr, uint64_t, unsigned))
#include "driver.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static CUstream called_with;
static CUresult inner_code = SUCCESS, callback_code = 77;
static volatile int calls;
static void count(void *data) { calls += (int)(intptr_t)data; }
static void call_cuda(void *data)
{
    CUdeviceptr p;
    (void)data;
    inner_code = cuMemAlloc_v2(&p, 64);
}
static void on_stream(CUstream stream, CUresult status, void *data)
{
    called_with = stream;
    callback_code = status;
    calls += (int)(intptr_t)data;
}
static CUevent started[2], ended[2];
struct turn { CUstream stream; int index; };
static void *launch_and_wait(void *argument)
{
    struct turn *turn = argument;
    CHECK(cuCtxSetCurrent(context) == SUCCESS);
    OK(cuEventRecord(started[turn->index], turn->stream));
    OK(launch(spin, turn->stream, 80000000));
    OK(cuEventRecord(ended[turn->index], turn->stream));
    OK(cuStreamSynchronize(turn->stream));
    return NULL;
}
static float between(CUevent from, CUevent to)
{
    float ms = 0;
    OK(cuEventElapsedTime(&ms, from, to));
    return ms;
}
static void priorities(CUstream s)
{
    int least = 9, greatest = 9, priority = 9;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest < 0);
    CUstream high;
    OK(cuStreamCreateWithPriority(&high, STREAM_NON_BLOCKING, -1000)); /* clamped */
    OK(cuStreamGetPriority(high, &priority));
    CHECK(priority == greatest);
    unsigned long long one = 0, other = 0;
    OK(cuStreamGetId(s, &one));
    OK(cuStreamGetId(high, &other));
    CHECK(one != other);
    CUcontext of = NULL;
    OK(cuStreamGetCtx(s, &of));
    CHECK(of == context);
    OK(cuStreamGetCtx(NULL, &of));
    CHECK(of == context);
    OK(cuStreamDestroy_v2(high));
    EXPECT(INVALID_HANDLE, cuStreamQuery(high));
    EXPECT(INVALID_HANDLE, cuStreamDestroy_v2(NULL));
}
static void default_streams(void)
{
    /* Two threads on their own default streams run side by side, on the legacy stream one after the other. */
    for (int i = 0; i < 2; i++) {
        OK(cuEventCreate(&started[i], 0));
        OK(cuEventCreate(&ended[i], 0));
    }
    for (int is_legacy = 0; is_legacy < 2; is_legacy++) {
        struct turn turns[2];
        pthread_t threads[2];
        for (int i = 0; i < 2; i++) {
            turns[i] = (struct turn){is_legacy ? STREAM_LEGACY : STREAM_PER_THREAD, i};
            pthread_create(&threads[i], NULL, launch_and_wait, &turns[i]);
        }
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
        float forth = between(started[0], ended[1]), back = between(started[1], ended[0]);
        if (is_legacy) CHECK((forth > back ? forth : back) >= 159.9f);
        else CHECK(forth > 0 && back > 0);
    }
    /* A kernel in the legacy stream stands between two blocking streams. */
    CUstream a, b;
    CUevent start, stop;
    OK(cuStreamCreate(&a, 0));
    OK(cuStreamCreate(&b, 0));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&stop, 0));
    OK(launch(spin, a, 30000000)); /* what follows is queued behind it: the host's speed is not measured */
    OK(cuEventRecord(start, a));
    OK(launch(spin, a, 10000000));
    OK(launch(spin, NULL, 10000000));
    OK(launch(spin, b, 10000000));
    OK(cuEventRecord(stop, b));
    OK(cuEventSynchronize(stop));
    float ms = 0;
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 29.9f && ms < 35);
    OK(cuEventElapsedTime(&ms, stop, start));
    CHECK(ms <= -29.9f);
    OK(cuEventDestroy_v2(start));
    EXPECT(INVALID_HANDLE, cuEventQuery(start));
    OK(cuEventDestroy_v2(stop));
    /* Destroyed with work pending: the call returns at once, the work still runs. */
    double t0 = now_ms();
    OK(launch(spin, a, 200000000));
    OK(cuStreamDestroy_v2(a));
    CHECK(now_ms() - t0 < 150);
    OK(cuCtxSynchronize());
    CHECK(now_ms() - t0 >= 199.9);
    OK(cuStreamDestroy_v2(b));
}
static void host_work(CUstream s)
{
    OK(cuLaunchHostFunc(s, count, (void *)1));
    OK(cuStreamAddCallback(s, on_stream, (void *)10, 0));
    OK(cuLaunchHostFunc(s, call_cuda, NULL));
    OK(cuStreamSynchronize(s));
    CHECK(calls == 11 && callback_code == SUCCESS && called_with == s);
    EXPECT(NOT_PERMITTED, inner_code);
    EXPECT(INVALID_VALUE, cuStreamAddCallback(s, on_stream, NULL, 1));
    EXPECT(INVALID_VALUE, cuLaunchHostFunc(s, NULL, NULL));
}
static void values(CUstream s, CUstream t)
{
    uint64_t *words = NULL;
    CUdeviceptr p = 0;
    OK(cuMemHostAlloc((void **)&words, 4096, 2));
    OK(cuMemHostGetDevicePointer_v2(&p, words, 0));
    memset(words, 0, 4096);
    /* One stream feeds another; the host sees the write without a call. */
    OK(cuStreamWaitValue64_v2(s, p, 5, 0 /* >= */));
    OK(cuStreamWriteValue32_v2(s, p + 64, 9, 0));
    EXPECT(NOT_READY, cuStreamQuery(s));
    OK(launch(spin, t, 2000000));
    OK(cuStreamWriteValue64_v2(t, p, 6, 0));
    for (int i = 0; i < 2000 && ((volatile uint64_t *)words)[8] != 9; i++) usleep(1000);
    CHECK(words[8] == 9);
    OK(cuStreamSynchronize(s));
    /* In one batch: wait for 7 at word 1 (equal), write 3 to word 2. */
    struct { unsigned type, pad; CUdeviceptr address; uint64_t value; unsigned flags, pad2; CUdeviceptr alias; uint64_t rest; }
        ops[2] = {{1, 0, p + 8, 7, 1, 0, 0, 0}, {2, 0, p + 16, 3, 0, 0, 0, 0}};
    OK(cuStreamBatchMemOp_v2(s, 2, ops, 0));
    usleep(2000);
    CHECK(((volatile uint64_t *)words)[2] == 0);
    __atomic_store_n(&words[1], 7, __ATOMIC_SEQ_CST);
    OK(cuStreamSynchronize(s));
    CHECK(words[2] == 3);
    ops[0].type = 99;
    EXPECT(INVALID_VALUE, cuStreamBatchMemOp_v2(s, 2, ops, 0));
    EXPECT(INVALID_VALUE, cuStreamWaitValue32_v2(s, p + 2, 0, 0)); /* not aligned */
}
static void launches(CUstream s)
{
    uint64_t ns = 3000000;
    void *params[] = {&ns};
    size_t size = sizeof ns;
    void *extra[] = {(void *)1, &ns, (void *)2, &size, (void *)0};
    CUevent start, stop;
    float ms = 0;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&stop, 0));
    OK(launch(spin, s, 30000000));
    OK(cuEventRecord(start, s));
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, NULL, extra));
    LaunchConfig config = {1, 1, 1, 1, 1, 1, 0, s, NULL, 0};
    OK(cuLaunchKernelEx(&config, spin, params, NULL));
    OK(cuLaunchCooperativeKernel(spin, 2, 1, 1, 32, 1, 1, 0, s, params));
    OK(cuEventRecord(stop, s));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 8.9f && ms < 12);
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, params, extra));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, s, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 2048, 1, 1, 0, s, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 32, 32, 2, 0, s, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 1, 70000, 1, 1, 1, 1, 0, s, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 100 << 10, s, params, NULL));
    EXPECT(INVALID_HANDLE, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
    EXPECT(INVALID_HANDLE, cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, (CUstream)0x1230, params, NULL));
    EXPECT(720, cuLaunchCooperativeKernel(spin, 1 << 20, 1, 1, 1024, 1, 1, 0, s, params));
    /* The deprecated way. */
    EXPECT(INVALID_VALUE, cuLaunchGridAsync(spin, 1, 1, s)); /* no block shape */
    OK(cuFuncSetBlockShape(spin, 8, 1, 1));
    OK(cuParamSetSize(spin, sizeof ns));
    OK(cuParamSetv(spin, 0, &ns, sizeof ns));
    OK(cuEventRecord(start, s));
    OK(cuLaunchGridAsync(spin, 2, 1, s));
    OK(cuEventRecord(stop, s));
    OK(cuStreamSynchronize(s));
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 2.99f && ms < 100);
    /* Kernels that fill the GPU run one after the other, small ones side by side. */
    CUstream t;
    OK(cuStreamCreate(&t, STREAM_NON_BLOCKING));
    ns = 10000000;
    double t0 = now_ms();
    OK(cuLaunchKernel(spin, 1 << 14, 1, 1, 1024, 1, 1, 0, s, params, NULL));
    OK(cuLaunchKernel(spin, 1 << 14, 1, 1, 1024, 1, 1, 0, t, params, NULL));
    OK(cuCtxSynchronize());
    CHECK(now_ms() - t0 >= 19.9);
    OK(cuStreamDestroy_v2(t));
}
int main(void)
{
    setup();
    CUstream s, t;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, STREAM_NON_BLOCKING));
    EXPECT(INVALID_VALUE, cuStreamCreate(&t, 2));
    priorities(s);
    default_streams();
    host_work(s);
    values(s, t);
    launches(s);
    /* A context's end takes its events and streams. */
    CUcontext second;
    CUevent event;
    CUstream inside;
    OK(cuCtxCreate_v2(&second, 0, device));
    OK(cuEventCreate(&event, 0));
    OK(cuStreamCreate(&inside, 0));
    EXPECT(INVALID_HANDLE, launch(spin, inside, 0)); /* a function of another context */
    EXPECT(INVALID_HANDLE, cuEventRecord(event, s));
    OK(cuCtxDestroy_v2(second));
    OK(cuCtxSetCurrent(context));
    EXPECT(INVALID_HANDLE, cuEventQuery(event));
    EXPECT(INVALID_HANDLE, cuStreamQuery(inside));
    OK(cuStreamSynchronize(s));
    return finish("sim_stream");
}
