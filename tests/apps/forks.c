/* Forks while other threads are inside every kind of hook: forks COUNT. Prints "children done" when all children
 * are gone and the memory that the process holds is still held, waits for a line on stdin, then ends.
 * A child that goes on without exec is refused as the driver refuses it (CUDA C++ Programming Guide, "the CUDA context
 * is not inherited by fork"); one that begins anew works; none is charged or credited. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuGetProcAddress_v2, cuGetProcAddress, 12000, (const char *, void **, int, unsigned long long, int *))           \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (IpcHandle *, CUdeviceptr))                                          \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))             \
    X(cuImportExternalMemory, cuImportExternalMemory, 10000, (struct External **, const HandleDesc *))                 \
    X(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (struct External *))                                    \
    X(cuMulticastCreate, cuMulticastCreate, 12010, (CUmemHandle *, const MulticastProp *))                             \
    X(cuMulticastAddDevice, cuMulticastAddDevice, 12010, (CUmemHandle, CUdevice))                                      \
    X(cuMulticastBindMem, cuMulticastBindMem, 12010,                                                                   \
      (CUmemHandle, size_t, CUmemHandle, size_t, size_t, unsigned long long))                                          \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, Resource *, unsigned))                         \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (struct Desc **, Resource *, unsigned))             \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (struct Green **, struct Desc *, CUdevice, unsigned))                 \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (struct Green *))                                                   \
    X(cuCtxSetLimit, cuCtxSetLimit, 3010, (unsigned, size_t))                                                          \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))
#include <stddef.h>
typedef struct { char bytes[64]; } IpcHandle;
typedef struct {
    int type;
    union { int fd; void *win32[2]; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} HandleDesc;
typedef struct { unsigned devices; size_t size; unsigned long long handle_types, flags; } MulticastProp;
typedef struct Resource { unsigned type; unsigned char bytes[132]; struct Resource *next; } Resource;
struct Desc;
struct Green;
struct External;
#include "driver.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
#define HELD ((size_t)96 << 20)
static volatile int stop;
static volatile long rounds[32];
static CUdeviceptr held;
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}
/* New programs' contexts may leave no room for a while. */
static int got(CUresult code)
{
    if (code != SUCCESS) EXPECT(OUT_OF_MEMORY, code);
    return code == SUCCESS;
}
static void linear(void)
{
    CUdeviceptr p;
    size_t pitch;
    if (got(cuMemAlloc_v2(&p, 1 << 20))) OK(cuMemFree_v2(p));
    if (got(cuMemAllocPitch_v2(&p, &pitch, 1000, 100, 4))) OK(cuMemFree_v2(p));
    if (got(cuMemAllocManaged(&p, 1 << 20, 1))) OK(cuMemFree_v2(p));
}
static void ordered(void)
{
    static __thread CUmemoryPool pool;
    CUdeviceptr p;
    PoolProps props = {.alloc_type = 1, .location = {1, device}};
    if (got(cuMemAllocAsync(&p, 1 << 20, NULL))) OK(cuMemFreeAsync(p, NULL));
    if (!pool) OK(cuMemPoolCreate(&pool, &props));
    if (got(cuMemAllocFromPoolAsync(&p, 1 << 20, pool, NULL))) OK(cuMemFreeAsync(p, NULL));
    OK(cuStreamSynchronize(NULL));
}
static void virtual(void)
{
    AllocationProp prop = {.type = 1, .location = {1, device}};
    CUmemHandle handle;
    CUdeviceptr p;
    OK(cuMemAddressReserve(&p, 2 << 20, 0, 0, 0));
    if (got(cuMemCreate(&handle, 2 << 20, &prop, 0))) {
        OK(cuMemMap(p, 2 << 20, 0, handle, 0));
        OK(cuMemRelease(handle));
        OK(cuMemUnmap(p, 2 << 20));
    }
    OK(cuMemAddressFree(p, 2 << 20));
}
static void arrays(void)
{
    ArrayDescriptor flat = {256, 256, 0x20, 4};
    Array3DDescriptor deep = {64, 64, 16, 0x20, 4, 0};
    CUarray array;
    CUmipmappedArray mipmap;
    if (got(cuArrayCreate_v2(&array, &flat))) OK(cuArrayDestroy(array));
    if (got(cuArray3DCreate_v2(&array, &deep))) OK(cuArrayDestroy(array));
    if (got(cuMipmappedArrayCreate(&mipmap, &deep, 3))) OK(cuMipmappedArrayDestroy(mipmap));
}
static void queries(void)
{
    size_t left, total;
    CUcontext again;
    OK(cuMemGetInfo_v2(&left, &total));
    OK(cuDeviceTotalMem_v2(&total, device));
    OK(cuDevicePrimaryCtxRetain(&again, device));
    OK(cuDevicePrimaryCtxRelease_v2(device));
}
static void lookups(void)
{
    void *function = NULL;
    int found = 0;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    CHECK(dlsym(library, "cuMemAlloc_v2") != NULL);
    dlsym(RTLD_NEXT, "cuMemFree_v2");
    dlsym(RTLD_DEFAULT, "cuMemFree_v2");
    OK(cuGetProcAddress_v2("cuMemAllocAsync", &function, 12000, 0, &found));
    dlclose(library);
}
static void launches(void)
{
    OK(launch(spin, STREAM_PER_THREAD, 20000));
    OK(cuStreamSynchronize(STREAM_PER_THREAD));
}
static void graphs(void)
{
    static __thread CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    if (!stream) OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    OK(launch(spin, stream, 1000));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}
static void modules(void)
{
    CUmodule extra;
    OK(cuModuleLoadData(&extra, SPIN_PTX));
    OK(cuModuleUnload(extra));
}
/* Memory that is named to others: each name is made and let go of again. */
static void shares(void)
{
    AllocationProp prop = {.type = 1, .requested_handle_types = 1, .location = {1, device}};
    HandleDesc desc = {.type = 1, .size = 2 << 20};
    struct External *external;
    CUmemHandle handle, again;
    CUdeviceptr p;
    IpcHandle name;
    int fd = -1;
    if (got(cuMemAlloc_v2(&p, 2 << 20))) {
        OK(cuIpcGetMemHandle(&name, p));
        OK(cuMemFree_v2(p));
    }
    if (!got(cuMemCreate(&handle, 2 << 20, &prop, 0))) return;
    OK(cuMemExportToShareableHandle(&fd, handle, 1, 0));
    OK(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1));
    OK(cuMemRelease(again));
    desc.handle.fd = fd; /* the driver's from here on */
    if (got(cuImportExternalMemory(&external, &desc))) OK(cuDestroyExternalMemory(external));
    else close(fd);
    OK(cuMemRelease(handle));
}
static void multicasts(void)
{
    AllocationProp prop = {.type = 1, .location = {1, device}};
    MulticastProp many = {.devices = 1, .size = 32 << 20};
    CUmemHandle object, handle;
    OK(cuMulticastCreate(&object, &many));
    OK(cuMulticastAddDevice(object, device));
    if (got(cuMemCreate(&handle, 32 << 20, &prop, 0))) {
        OK(cuMulticastBindMem(object, 0, handle, 0, 32 << 20, 0));
        OK(cuMemRelease(handle));
    }
    OK(cuMemRelease(object));
}
static void contexts(void)
{
    static __thread struct Desc *description;
    struct Green *green;
    CUcontext extra, popped;
    Resource all;
    if (!description) {
        OK(cuDeviceGetDevResource(device, &all, 1));
        OK(cuDevResourceGenerateDesc(&description, &all, 1));
    }
    if (got(cuGreenCtxCreate(&green, description, device, 1))) OK(cuGreenCtxDestroy(green));
    if (got(cuCtxCreate_v2(&extra, 0, device))) {
        got(cuCtxSetLimit(2 /* heap */, 16 << 20));
        OK(cuCtxPopCurrent_v2(&popped));
        OK(cuCtxDestroy_v2(extra));
    }
}
/* A captured graph that has memory of its own. */
static void graph_memory(void)
{
    static __thread CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr p;
    if (!stream) OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    OK(cuMemAllocAsync(&p, 1 << 20, stream));
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    if (got(cuGraphLaunch(exec, stream))) OK(cuStreamSynchronize(stream));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
}
static void counted(void *count) { ++*(int *)count; }
static void hosts(void)
{
    static __thread CUstream stream;
    static __thread int count;
    int before = count;
    if (!stream) OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(stream, counted, &count));
    OK(cuStreamSynchronize(stream));
    CHECK(count == before + 1);
}
static void nvml(void)
{
    static int (*init)(void), (*handle)(unsigned, void **), (*memory)(void *, void *), (*list)(void *, unsigned *, void *);
    unsigned long long figures[3], processes[3 * 256];
    unsigned count = 256;
    void *on;
    if (!list) {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
        init = (int (*)(void))dlsym(library, "nvmlInit_v2");
        handle = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
        memory = (int (*)(void *, void *))dlsym(library, "nvmlDeviceGetMemoryInfo");
        list = (int (*)(void *, unsigned *, void *))dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3");
        CHECK(init() == 0);
    }
    CHECK(handle(0, &on) == 0 && memory(on, figures) == 0 && list(on, &count, processes) == 0 && count > 0);
}
static void (*const kinds[])(void) = {linear, ordered, virtual, arrays, queries, lookups, launches, graphs,
                                      modules, shares, multicasts, contexts, graph_memory, hosts, nvml};
#define KINDS (sizeof kinds / sizeof *kinds)
static void *busy(void *kind)
{
    OK(cuCtxSetCurrent(context));
    while (!stop) {
        kinds[(size_t)kind]();
        rounds[(size_t)kind]++;
    }
    return NULL;
}
/* In a child: every hook answers as the driver does. Nothing here may print, lock or allocate. */
static int refused(int which)
{
    CUdeviceptr p = 0;
    CUarray array;
    CUmemHandle handle;
    ArrayDescriptor flat = {256, 256, 0x20, 4};
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    CUcontext other;
    CUmodule extra;
    size_t left, total;
    void *function = NULL;
    int found;
    switch (which % 12) {
    case 0: return cuMemAlloc_v2(&p, 1 << 20) != NOT_INITIALIZED;
    case 1: return cuMemFree_v2(held) != NOT_INITIALIZED;
    case 2: return cuMemAllocAsync(&p, 1 << 20, NULL) != NOT_INITIALIZED;
    case 3: return cuMemCreate(&handle, 2 << 20, &prop, 0) != NOT_INITIALIZED;
    case 4: return cuArrayCreate_v2(&array, &flat) != NOT_INITIALIZED;
    case 5: return cuMemGetInfo_v2(&left, &total) != NOT_INITIALIZED;
    case 6: return launch(spin, NULL, 1000) != NOT_INITIALIZED;
    case 7: return cuDevicePrimaryCtxRetain(&other, 0) != NOT_INITIALIZED;
    case 8: return cuModuleLoadData(&extra, SPIN_PTX) != NOT_INITIALIZED;
    case 9: return cuInit(0) != NOT_INITIALIZED;
    case 10:
        dlsym(RTLD_NEXT, "cuMemFree_v2");
        return dlsym(RTLD_DEFAULT, "no_such_name") != NULL;
    default: return cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &found) != SUCCESS || !function;
    }
}
/* As daemons do: away from the parent, from the terminal and from every open file. */
static void daemonise(char *const anew[])
{
    if (fork()) _exit(0);
    setsid();
    if (fork()) _exit(0);
    syscall(SYS_close_range, 3u, ~0u, 0u);
    execv("/proc/self/exe", anew);
    _exit(1);
}
static int begin_anew(void)
{
    CUdeviceptr p;
    setup();
    OK(cuMemAlloc_v2(&p, 1 << 20));
    OK(launch(spin, NULL, 1000));
    OK(cuCtxSynchronize());
    return failures;
}
static void await(pid_t child, int i, int kind)
{
    int status = 0, ended = 0;
    double bound = seconds() + 60;
    while (!(ended = waitpid(child, &status, WNOHANG)) && seconds() < bound) usleep(100);
    if (ended) {
        if (status && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && kind == 6)) {
            printf("FAIL child %d of kind %d: status %x\n", i, kind, status);
            failures++;
        }
        return;
    }
    printf("FAIL child %d of kind %d hangs\n", i, kind);
    failures++;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}
/* Daemons come back to who asked for it: the container's figures are this process's own only once they are gone. */
static void await_daemons(void)
{
    int status = 0;
    pid_t child;
    while ((child = waitpid(-1, &status, 0)) > 0)
        if (status) {
            printf("FAIL daemon %d: status %x\n", child, status);
            failures++;
        }
}
/* What is free once nothing moves any more: what the driver takes for itself is measured now and then. */
static size_t settled(void)
{
    size_t left = 0, before = 1, total;
    for (int i = 0; i < 20 && left != before; i++) {
        before = left;
        OK(cuMemGetInfo_v2(&left, &total));
        usleep(300000);
    }
    return left;
}
int main(int argc, char **argv)
{
    if (argc < 2) return begin_anew();
    int count = atoi(argv[1]);
    setvbuf(stdout, NULL, _IONBF, 0);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    setup();
    OK(cuMemAlloc_v2(&held, HELD));
    pthread_t threads[KINDS];
    for (size_t i = 0; i < KINDS; i++) pthread_create(&threads[i], NULL, busy, (void *)i);
    char *anew[] = {"forks", NULL};
    for (int i = 0; i < count && failures < 3; i++) {
        pid_t child = -1;
        /* Most children go on without exec: those are the ones that meet what the parent held. */
        int kind = i % 16 < 9 ? 0 : i % 16 - 8;
        /* Programs with a context of their own are slow: few of them. */
        if (i % 160 >= 16 && (kind == 1 || kind == 3 || kind == 5)) kind = 4;
        switch (kind) {
        case 0:
            if ((child = fork()) == 0) _exit(refused(i) || refused(i / 12));
            break;
        case 1:
            if ((child = fork()) == 0) _exit(execv("/proc/self/exe", anew));
            break;
        case 2:
            if ((child = vfork()) == 0) _exit(execl("/bin/true", "true", NULL));
            break;
        case 3: CHECK(posix_spawn(&child, "/proc/self/exe", NULL, NULL, anew, environ) == 0); break;
        case 4:
            if ((child = fork()) == 0) exit(0);
            break;
        case 5:
            if ((child = fork()) == 0) daemonise(anew);
            break;
        case 6: /* killed wherever it is */
            if ((child = fork()) == 0)
                for (int j = 0;; j++)
                    if (refused(j)) _exit(1);
            usleep(i % 500);
            kill(child, SIGKILL);
            break;
        case 7: /* its own child, in turn */
            if ((child = fork()) == 0) {
                pid_t grandchild = fork();
                int status = 0;
                if (grandchild == 0) _exit(refused(i) || refused(5));
                waitpid(grandchild, &status, 0);
                _exit(status != 0 || refused(i + 1));
            }
            break;
        }
        await(child, i, kind);
    }
    await_daemons();
    stop = 1;
    for (size_t i = 0; i < KINDS; i++) {
        pthread_join(threads[i], NULL);
        if (!rounds[i]) {
            printf("FAIL thread %zu never came round\n", i);
            failures++;
        }
    }
    /* One more stays, having tried everything: it has no part in the container's figures, nor has its end. */
    size_t before, after, total;
    pid_t last = fork();
    if (last == 0) {
        for (int i = 0; i < 12; i++)
            if (refused(i)) _exit(1);
        for (;;) pause();
    }
    before = settled();
    printf("children done\n");
    getchar();
    kill(last, SIGKILL);
    waitpid(last, &count, 0);
    CHECK(WIFSIGNALED(count));
    after = settled();
    if (before != after) printf("free: %zu, then %zu\n", before, after);
    CHECK(before == after);
    OK(cuMemFree_v2(held));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before + HELD);
    return finish("forks");
}
