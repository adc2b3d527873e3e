/* What the driver takes for itself, step by step: overhead SCENARIO LISTED. Prints a line after each step; every line of
 * stdin is answered with "used BYTES", what cuMemGetInfo says is in use, or with the next step if it is "on".
 *   steps    contexts, code, limits, green contexts, pools and graphs, come and go
 *   refused  under a quota that has no room for a context; after "on" for one, but not for a second
 * LISTED is "listed" where NVML tells what this process has: else what a launch takes is not found, and what code takes
 * is no reason to refuse it.
 * CUDA Driver API: "Context Management", "Module Management", "Green Contexts"; cuCtxSetLimit. */
typedef struct Resource {
    unsigned type;
    unsigned char padding[92];
    unsigned char bytes[40];
    struct Resource *next;
} Resource;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010, (unsigned, size_t))                                                          \
    X(cuCtxGetLimit, cuCtxGetLimit, 3010, (size_t *, unsigned))                                                        \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, Resource *, unsigned))                         \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (struct Desc **, Resource *, unsigned))             \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (struct Green **, struct Desc *, CUdevice, unsigned))                 \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (struct Green *))                                                   \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))
struct Desc;
struct Green;
#include "driver.h"
enum { STACK = 0, PRINTF = 1, HEAP = 2, MIB = 1 << 20, MODULES = 12, GREENS = 4 };
static const char LOCAL_PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                ".visible .entry needy()\n{\n  .local .align 4 .b8 depot[2048];\n  ret;\n}\n";
static CUcontext extra;
static CUmodule modules[MODULES];
static CUlibrary library;
static CUfunction needy;
static CUkernel kernel;
static struct Desc *description;
static struct Green *greens[GREENS];
static CUgraphExec graph;

static size_t used(void)
{
    size_t left = 0, total = 0;
    OK(cuMemGetInfo_v2(&left, &total));
    return total - left;
}
/* Says that the step is done, and waits for leave to go on. */
static void done(const char *step)
{
    char line[64];
    printf("%s %s\n", failures ? "FAILED" : "did", step);
    if (failures) exit(1);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "on\n")) printf("used %zu\n", used());
}
static void make_graph(void)
{
    CUgraph made = NULL;
    CUdeviceptr p = 0;
    CUstream s;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(cuMemAllocAsync(&p, 90 * MIB, s));
    OK(launch(spin, s, 1000));
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamEndCapture(s, &made));
    OK(cuGraphInstantiateWithFlags(&graph, made, 0));
    OK(cuGraphDestroy(made));
    OK(cuStreamDestroy_v2(s));
}
static int steps(int with_local)
{
    CUdeviceptr pieces[500], pooled = 0;
    CUmemoryPool pool;
    Resource all;
    size_t values[3];
    unsigned long long keep = ~0ull;
    setup();
    done("first context");
    OK(cuCtxCreate_v2(&extra, 0, device));
    OK(cuCtxPopCurrent_v2(&extra));
    OK(cuCtxSetCurrent(context));
    done("second context");
    for (int i = 0; i < MODULES; i++) OK(cuModuleLoadData(&modules[i], SPIN_PTX));
    done("modules");
    OK(cuLibraryLoadData(&library, LOCAL_PTX, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "needy"));
    OK(cuKernelGetFunction(&needy, kernel));
    done("library");
    if (with_local) OK(cuLaunchKernel(needy, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuCtxSynchronize());
    done("local memory");
    for (unsigned i = 0; i < 3; i++) OK(cuCtxGetLimit(&values[i], i));
    OK(cuCtxSetLimit(HEAP, values[HEAP] + 200 * MIB));
    done("heap");
    OK(cuCtxSetLimit(PRINTF, values[PRINTF] + 100 * MIB));
    done("buffer of printf");
    OK(cuCtxSetLimit(STACK, values[STACK] + 2048));
    done("stack");
    OK(cuDeviceGetDevResource(device, &all, 1));
    OK(cuDevResourceGenerateDesc(&description, &all, 1));
    for (int i = 0; i < GREENS; i++) OK(cuGreenCtxCreate(&greens[i], description, device, 1));
    done("green contexts");
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolSetAttribute(pool, 4 /* release threshold */, &keep));
    OK(cuMemAllocAsync(&pooled, 150 * MIB, NULL));
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuCtxSynchronize());
    done("pool");
    make_graph();
    OK(cuGraphLaunch(graph, NULL));
    OK(cuCtxSynchronize());
    done("graph");
    for (int i = 0; i < 500; i++) OK(cuMemAlloc_v2(&pieces[i], 1 + 777 * i));
    done("small pieces");
    for (int i = 0; i < 500; i++) OK(cuMemFree_v2(pieces[i]));
    OK(cuGraphExecDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
    OK(cuMemPoolTrimTo(pool, 0));
    done("memory given back");
    for (int i = 0; i < GREENS; i++) OK(cuGreenCtxDestroy(greens[i]));
    for (unsigned i = 0; i < 3; i++) OK(cuCtxSetLimit(i, values[i]));
    done("limits lowered");
    for (int i = 0; i < MODULES; i++) OK(cuModuleUnload(modules[i]));
    OK(cuLibraryUnload(library));
    done("code unloaded");
    OK(cuCtxDestroy_v2(extra));
    done("second context destroyed");
    OK(cuDevicePrimaryCtxReset_v2(device));
    OK(cuDevicePrimaryCtxRetain(&context, device));
    OK(cuCtxSetCurrent(context));
    done("context anew");
    return finish("overhead");
}
/* A refusal leaves nothing: no handle, no current context, no active primary context. */
static void refuses_contexts(int is_first)
{
    CUcontext made = (CUcontext)0x77, before = NULL, now = NULL;
    unsigned flags = 0;
    int active = 7;
    OK(cuCtxGetCurrent(&before));
    if (is_first) {
        EXPECT(OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&made, device));
        OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
        CHECK(active == 0);
        struct Green *green = (struct Green *)0x77;
        EXPECT(OUT_OF_MEMORY, cuGreenCtxCreate(&green, description, device, 1));
        CHECK(green == (struct Green *)0x77);
        OK(cuDevicePrimaryCtxGetState(device, &flags, &active));
        CHECK(active == 0);
    }
    EXPECT(OUT_OF_MEMORY, cuCtxCreate_v2(&made, 0, device));
    CHECK(made == (CUcontext)0x77);
    OK(cuCtxGetCurrent(&now));
    CHECK(now == before);
}
static void told_later(const char *step)
{
    char line[64];
    printf("%s %s\n", failures ? "FAILED" : "did", step);
    if (failures) exit(1);
    if (!fgets(line, sizeof line, stdin)) exit(1);
}
/* NVML rounds what a process has. */
static int is_near(size_t one, size_t other) { return one < other + 4 * MIB && other < one + 4 * MIB; }
static int refused(int is_listed)
{
    Resource all;
    CUdeviceptr p = 0, q = 0;
    size_t heap = 0, still = 0, before;
    driver_open();
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetDevResource(device, &all, 1));
    OK(cuDevResourceGenerateDesc(&description, &all, 1));
    for (int i = 0; i < 20; i++) refuses_contexts(1);
    told_later("refuse");
    setup();
    OK(cuMemAlloc_v2(&p, MIB));
    for (int i = 0; i < 20; i++) refuses_contexts(0);
    OK(cuMemAlloc_v2(&q, MIB)); /* the context stays usable */
    OK(launch(spin, NULL, 1000));
    OK(cuCtxSynchronize());
    /* What grows in it: refused where NVML says that it does not fit, and as it was. */
    before = used();
    if (!is_listed) {
        told_later("fit once");
        return finish("overhead");
    }
    OK(cuCtxGetLimit(&heap, HEAP));
    EXPECT(OUT_OF_MEMORY, cuCtxSetLimit(HEAP, heap + 600 * (size_t)MIB));
    OK(cuCtxGetLimit(&still, HEAP));
    CHECK(still == heap); CHECK(is_near(used(), before));
    CUmodule more[64] = {NULL}, none = (CUmodule)0x77;
    int loaded = 0;
    while (loaded < 64 && cuModuleLoadData(&more[loaded], SPIN_PTX) == SUCCESS) loaded++;
    CHECK(loaded > 0 && loaded < 64);
    EXPECT(OUT_OF_MEMORY, cuModuleLoadData(&none, SPIN_PTX));
    CHECK(none == (CUmodule)0x77);
    OK(cuModuleUnload(more[0]));
    OK(cuModuleLoadData(&more[0], SPIN_PTX));
    for (int i = 0; i < loaded; i++) OK(cuModuleUnload(more[i]));
    CHECK(is_near(used(), before));
    OK(cuMemFree_v2(p));
    OK(cuMemFree_v2(q));
    told_later("fit once");
    return finish("overhead");
}
int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    int is_listed = argc > 2 && !strcmp(argv[2], "listed");
    return argc > 1 && !strcmp(argv[1], "refused") ? refused(is_listed) : steps(is_listed);
}
