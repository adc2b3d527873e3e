/* Gives back what is not there to be given back: null, unknown, another process's, twice, and by another kind's function.
 * A line for each call: its status, and by how much it moved the memory in use, which no call may that fails. The lines
 * of a run without the shim and of one with it are compared. Each kind is tried in a process of its own. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (IpcHandle *, CUdeviceptr))                                          \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                   \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, uint64_t))         \
    X(cuImportExternalMemory, cuImportExternalMemory, 10000, (void **, const ExternalDescription *))                   \
    X(cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (void *))                                               \
    X(cuDeviceGetDevResource, cuDeviceGetDevResource, 12040, (CUdevice, void *, int))                                  \
    X(cuDevResourceGenerateDesc, cuDevResourceGenerateDesc, 12040, (void **, void *, unsigned))                        \
    X(cuGreenCtxCreate, cuGreenCtxCreate, 12040, (void **, void *, CUdevice, unsigned))                                \
    X(cuGreenCtxDestroy, cuGreenCtxDestroy, 12040, (void *))
#include <stdint.h>
#include <stddef.h>
typedef struct { char bytes[64]; } IpcHandle;
typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } win32; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} ExternalDescription;
#include "driver.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
enum { BYTES = 2 << 20, MANY = 12 };
static struct { uint64_t handles[32]; IpcHandle ipc; } foreign;
static CUmemoryPool pool;

static CUresult make_linear(uint64_t *h) { return cuMemAlloc_v2((CUdeviceptr *)h, BYTES); }
static CUresult make_pitch(uint64_t *h)
{
    size_t pitch;
    return cuMemAllocPitch_v2((CUdeviceptr *)h, &pitch, 1000, 2000, 4);
}
static CUresult make_managed(uint64_t *h) { return cuMemAllocManaged((CUdeviceptr *)h, BYTES, 1); }
static CUresult make_async(uint64_t *h)
{
    CUresult code = cuMemAllocAsync((CUdeviceptr *)h, BYTES, NULL);
    return code ? code : cuStreamSynchronize(NULL);
}
static CUresult make_pool(uint64_t *h)
{
    PoolProps props = {.alloc_type = 1, .location = {1, device}};
    return cuMemPoolCreate((CUmemoryPool *)h, &props);
}
static CUresult make_pooled(uint64_t *h)
{
    CUresult code = pool ? SUCCESS : make_pool((uint64_t *)&pool);
    if (!code) code = cuMemAllocFromPoolAsync((CUdeviceptr *)h, BYTES, pool, NULL);
    return code ? code : cuStreamSynchronize(NULL);
}
static CUresult make_array(uint64_t *h)
{
    ArrayDescriptor shape = {512, 512, 1, 1};
    return cuArrayCreate_v2((CUarray *)h, &shape);
}
static CUresult make_mipmap(uint64_t *h)
{
    Array3DDescriptor shape = {512, 512, 0, 1, 1, 0};
    return cuMipmappedArrayCreate((CUmipmappedArray *)h, &shape, 3);
}
static CUresult make_allocation(uint64_t *h)
{
    AllocationProp props = {.type = 1, .requested_handle_types = 1, .location = {1, device}};
    return cuMemCreate((CUmemHandle *)h, BYTES, &props, 0);
}
static CUresult make_mapping(uint64_t *h)
{
    uint64_t allocation;
    CUresult code = make_allocation(&allocation);
    if (!code) code = cuMemAddressReserve((CUdeviceptr *)h, BYTES, 0, 0, 0);
    if (!code) code = cuMemMap(*h, BYTES, 0, allocation, 0);
    return code;
}
static CUresult make_opened(uint64_t *h) { return cuIpcOpenMemHandle_v2((CUdeviceptr *)h, foreign.ipc, 1); }
static CUresult make_external(uint64_t *h)
{
    uint64_t allocation;
    ExternalDescription description = {.type = 1, .size = BYTES};
    CUresult code = make_allocation(&allocation);
    if (!code) code = cuMemExportToShareableHandle(&description.handle.fd, allocation, 1, 0);
    return code ? code : cuImportExternalMemory((void **)h, &description);
}
static CUresult make_module(uint64_t *h) { return cuModuleLoadData((CUmodule *)h, SPIN_PTX); }
static CUresult make_library(uint64_t *h)
{
    return cuLibraryLoadData((CUlibrary *)h, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0);
}
static CUresult make_context(uint64_t *h)
{
    CUresult code = cuCtxCreate_v2((CUcontext *)h, 0, device);
    return code ? code : cuCtxSetCurrent(context);
}
static CUresult make_green(uint64_t *h)
{
    static char resource[256];
    void *description;
    CUresult code = cuDeviceGetDevResource(device, resource, 1);
    if (!code) code = cuDevResourceGenerateDesc(&description, resource, 1);
    return code ? code : cuGreenCtxCreate((void **)h, description, device, 1);
}
static CUresult make_stream(uint64_t *h) { return cuStreamCreate((CUstream *)h, STREAM_NON_BLOCKING); }
static CUresult make_event(uint64_t *h) { return cuEventCreate((CUevent *)h, 0); }
static CUresult make_graph(uint64_t *h) { return cuGraphCreate((CUgraph *)h, 0); }
static CUresult make_exec(uint64_t *h)
{
    CUgraph graph;
    CUresult code = cuGraphCreate(&graph, 0);
    return code ? code : cuGraphInstantiateWithFlags((CUgraphExec *)h, graph, 0);
}

#define RELEASE(name, call) static CUresult name(uint64_t h) { return call; }
RELEASE(free_memory, cuMemFree_v2(h))
RELEASE(free_async, cuMemFreeAsync(h, NULL))
RELEASE(destroy_pool, cuMemPoolDestroy((CUmemoryPool)h))
RELEASE(destroy_array, cuArrayDestroy((CUarray)h))
RELEASE(destroy_mipmap, cuMipmappedArrayDestroy((CUmipmappedArray)h))
RELEASE(release_allocation, cuMemRelease(h))
RELEASE(unmap, cuMemUnmap(h, BYTES))
RELEASE(close_opened, cuIpcCloseMemHandle(h))
RELEASE(destroy_external, cuDestroyExternalMemory((void *)h))
RELEASE(unload_module, cuModuleUnload((CUmodule)h))
RELEASE(unload_library, cuLibraryUnload((CUlibrary)h))
RELEASE(destroy_context, cuCtxDestroy_v2((CUcontext)h))
RELEASE(destroy_green, cuGreenCtxDestroy((void *)h))
RELEASE(destroy_stream, cuStreamDestroy_v2((CUstream)h))
RELEASE(destroy_event, cuEventDestroy_v2((CUevent)h))
RELEASE(destroy_graph, cuGraphDestroy((CUgraph)h))
RELEASE(destroy_exec, cuGraphExecDestroy((CUgraphExec)h))

static const struct Kind {
    const char *name;
    CUresult (*make)(uint64_t *);
    CUresult (*release)(uint64_t);
} KINDS[] = {{"linear", make_linear, free_memory}, {"pitch", make_pitch, free_memory},
    {"managed", make_managed, free_memory}, {"async", make_async, free_async}, {"pool", make_pool, destroy_pool},
    {"pooled", make_pooled, free_async}, {"array", make_array, destroy_array}, {"mipmap", make_mipmap, destroy_mipmap},
    {"allocation", make_allocation, release_allocation}, {"mapping", make_mapping, unmap},
    {"opened", make_opened, close_opened}, {"external", make_external, destroy_external},
    {"module", make_module, unload_module}, {"library", make_library, unload_library},
    {"context", make_context, destroy_context}, {"green context", make_green, destroy_green},
    {"stream", make_stream, destroy_stream}, {"event", make_event, destroy_event}, {"graph", make_graph, destroy_graph},
    {"graph executable", make_exec, destroy_exec}};
enum { KINDS_COUNT = sizeof KINDS / sizeof *KINDS };

static size_t used(void)
{
    size_t free_bytes = 0, total = 0;
    cuCtxSetCurrent(context);
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    return total - free_bytes;
}
enum State { AS_USUAL, NO_CONTEXT, CAPTURING };
/* One wrong call. Returns its status. */
static CUresult wrong_in(enum State state, const char *what, const struct Kind *by, uint64_t handle)
{
    CUstream stream = NULL;
    CUgraph graph = NULL;
    size_t before = used();
    if (state == NO_CONTEXT) OK(cuCtxSetCurrent(NULL));
    if (state == CAPTURING) {
        OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
        OK(cuStreamBeginCapture_v2(stream, CAPTURE_GLOBAL));
    }
    CUresult code = by->release(handle);
    if (state == CAPTURING) {
        cuCtxSetCurrent(context);
        cuStreamEndCapture(stream, &graph);
        OK(cuStreamDestroy_v2(stream));
        if (graph) OK(cuGraphDestroy(graph));
    }
    long moved = (long)(used() - before);
    printf("%s by %s: %d", what, by->name, code);
    if (code && moved) printf(", memory in use moved by %ld", moved);
    printf("\n");
    fflush(stdout);
    return code;
}
static CUresult wrong(const char *what, const struct Kind *by, uint64_t handle)
{
    return wrong_in(AS_USUAL, what, by, handle);
}
static void try_kind(const struct Kind *kind)
{
    static const uint64_t unknown[] = {0, 16, 0x7e57deadbeef0000, 0x0002deadbeef0000, ~0ull};
    char what[64];
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(what, sizeof what, "%#llx", (unsigned long long)unknown[i]);
        wrong(what, kind, unknown[i]);
    }
    wrong("another process's", kind, foreign.handles[kind - KINDS]);
    uint64_t handle = 0;
    CUresult code = kind->make(&handle);
    if (code) {
        printf("%s cannot be made: %d\n", kind->name, code);
        return;
    }
    snprintf(what, sizeof what, "%s + 1", kind->name);
    wrong(what, kind, handle + 1);
    for (const struct Kind *by = KINDS; by < KINDS + KINDS_COUNT; by++) {
        if (by->release == kind->release) continue;
        /* What another kind's function did give back is made anew. */
        if (wrong(kind->name, by, handle) != SUCCESS) continue;
        OK(cuStreamSynchronize(NULL));
        OK(kind->make(&handle));
    }
    snprintf(what, sizeof what, "%s without a context", kind->name);
    if (wrong_in(NO_CONTEXT, what, kind, handle) == SUCCESS) OK((cuCtxSetCurrent(context), kind->make(&handle)));
    snprintf(what, sizeof what, "%s during a capture", kind->name);
    if (wrong_in(CAPTURING, what, kind, handle) == SUCCESS) OK((cuCtxSetCurrent(context), kind->make(&handle)));
    size_t with = used();
    OK(kind->release(handle));
    OK(cuCtxSetCurrent(context));
    OK(cuStreamSynchronize(NULL));
    CHECK(used() <= with);
    snprintf(what, sizeof what, "%s twice", kind->name);
    for (int i = 0; i < 3; i++) wrong(what, kind, handle);
}
/* Another process, which makes many of each kind, so that its last ones are no numbers of ours. */
static pid_t foreigner(void)
{
    int news[2];
    if (pipe(news)) exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t linear = 0;
        setup();
        for (int i = 0; i < KINDS_COUNT; i++)
            for (int n = 0; n < MANY && KINDS[i].make != make_opened; n++) {
                if (KINDS[i].make == make_context && n == 3) break;
                KINDS[i].make(&foreign.handles[i]);
            }
        OK(make_linear(&linear));
        OK(cuIpcGetMemHandle(&foreign.ipc, linear));
        if (write(news[1], &foreign, sizeof foreign) != sizeof foreign) _exit(2);
        close(news[1]);
        pause();
    }
    close(news[1]);
    if (read(news[0], &foreign, sizeof foreign) != sizeof foreign) exit(2);
    close(news[0]);
    return pid;
}
int main(void)
{
    pid_t other = foreigner();
    for (const struct Kind *kind = KINDS; kind < KINDS + KINDS_COUNT; kind++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            setup();
            try_kind(kind);
            exit(finish(kind->name));
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) printf("FAIL %s ended by signal %d\n", kind->name, WTERMSIG(status));
        failures += status != 0;
    }
    kill(other, 9);
    waitpid(other, NULL, 0);
    return finish("wrong_frees");
}
