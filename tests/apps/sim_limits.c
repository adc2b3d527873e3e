/* What cuCtxSetLimit and local memory cost on the simulated machine (simulator/src/object/limits.rs). */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010, (unsigned, size_t))                                                          \
    X(cuCtxGetLimit, cuCtxGetLimit, 3010, (size_t *, unsigned))
#include <stddef.h>
#include <sys/types.h>
#include "driver.h"
enum { STACK = 0, PRINTF = 1, HEAP = 2 };
static const char LOCAL_PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry needy()\n{\n  .local .align 4 .b8 depot[5120];\n  ret;\n}\n";
static size_t start;
static size_t taken(void)
{
    size_t left = 0, total;
    OK(cuMemGetInfo_v2(&left, &total));
    return start - left;
}
static size_t limit(unsigned which)
{
    size_t value = 0;
    OK(cuCtxGetLimit(&value, which));
    return value;
}
int main(void)
{
    int sms = 0, threads = 0;
    size_t total;
    CUmodule local_module;
    CUfunction needy;
    setup();
    OK(cuDeviceGetAttribute(&sms, 16, device));
    OK(cuDeviceGetAttribute(&threads, 39, device));
    OK(cuMemGetInfo_v2(&start, &total));
    size_t heap = limit(HEAP), buffer = limit(PRINTF), stack = limit(STACK), resident = (size_t)sms * threads;
    OK(cuCtxSetLimit(HEAP, heap + (64 << 20)));
    CHECK(taken() == 64 << 20);
    OK(cuCtxSetLimit(PRINTF, buffer + (2 << 20)));
    CHECK(taken() == 66 << 20);
    OK(cuCtxSetLimit(STACK, stack + 1024));
    CHECK(taken() == (66 << 20) + 1024 * resident);
    EXPECT(OUT_OF_MEMORY, cuCtxSetLimit(HEAP, (size_t)1 << 50));
    EXPECT(OUT_OF_MEMORY, cuCtxSetLimit(STACK, (size_t)-1));
    CHECK(limit(HEAP) == heap + (64 << 20) && limit(STACK) == stack + 1024);
    CHECK(taken() == (66 << 20) + 1024 * resident);
    OK(cuCtxSetLimit(HEAP, heap));
    OK(cuCtxSetLimit(PRINTF, 1024)); /* below the default: what the context took at first stays */
    OK(cuCtxSetLimit(STACK, stack));
    CHECK(taken() == 0);
    /* A kernel that needs more local memory than the stack has. */
    OK(cuModuleLoadData(&local_module, LOCAL_PTX));
    OK(cuModuleGetFunction(&needy, local_module, "needy"));
    CHECK(taken() == 0);
    OK(cuLaunchKernel(needy, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    CHECK(taken() == (5120 - 1024) * resident);
    OK(cuLaunchKernel(needy, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSetLimit(STACK, 2048)); /* is in there already */
    CHECK(taken() == (5120 - 1024) * resident);
    /* All of it ends with the context. */
    OK(cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    CHECK(limit(STACK) == stack);
    CHECK((ssize_t)taken() <= 0); /* the module that setup() loaded is gone too */
    return finish("sim_limits");
}
