/* Memory of graphs is paid for: graph_memory SCENARIO. Under a quota, each step is checked against cuMemGetInfo and the
 * driver's own figures of its graphs; the test's caller checks the machine's record. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                                           \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocNodeParams *))                                        \
    X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040,                                                             \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                                              \
    X(cuGraphAddNode_v2, cuGraphAddNode, 12030,                                                                        \
      (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, NodeParams *))                               \
    X(cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec, CUstream))                                                    \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, (CUgraphExec *, CUgraph, InstantiateParams *)) \
    X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, (CUgraphExec, CUgraph, void *))                                  \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))                                                   \
    X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, (CUdevice, int, void *))                      \
    X(cuDeviceSetGraphMemAttribute, cuDeviceSetGraphMemAttribute, 11040, (CUdevice, int, void *))
#include <stddef.h>
typedef struct {
    struct {
        unsigned alloc_type, handle_types;
        struct { unsigned type; int id; } location;
        void *win32;
        size_t max_size;
        unsigned char reserved[56];
    } pool;
    const void *access;
    size_t access_count, bytes;
    unsigned long long address;
} AllocNodeParams;
typedef struct { unsigned type; int reserved0[3]; AllocNodeParams alloc; long long rest[15]; } NodeParams;
typedef struct { unsigned long long flags; void *stream, *node; int result; } InstantiateParams;
#include "driver.h"
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>
#define MIB ((size_t)1 << 20)
enum { NODE_ALLOC = 10, UPLOAD = 2, RESERVED = 2 };
static size_t limit, base;
static CUstream stream;
static size_t used(void)
{
    size_t left = 0, total = 0;
    OK(cuMemGetInfo_v2(&left, &total));
    return total - left;
}
static uint64_t held(CUdevice on)
{
    uint64_t value = ~0ull;
    OK(cuDeviceGetGraphMemAttribute(on, RESERVED, &value));
    return value;
}
static void pays(void) { CHECK(used() == base + held(device)); }
static void trim(void)
{
    OK(cuDeviceGraphMemTrim(device));
    pays();
}
static void run(CUgraphExec exec)
{
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
}
/* A captured graph that allocates, works and frees. */
static CUgraphExec captured(size_t bytes, uint64_t ns)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUdeviceptr p = 0;
    CUstream s;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(cuMemAllocAsync(&p, bytes, s)); /* a node: nothing is refused, nothing paid */
    OK(launch(spin, s, ns));
    OK(cuMemFreeAsync(p, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuStreamDestroy_v2(s));
    return exec;
}
/* A graph built by hand; without `free` its memory outlives it. */
static CUgraph built(size_t bytes, int on, int is_tagged, int is_freed, CUdeviceptr *address)
{
    CUgraph graph = NULL;
    CUgraphNode node, last;
    AllocNodeParams params = {.pool = {.alloc_type = 1, .location = {1, on}}, .bytes = bytes};
    OK(cuGraphCreate(&graph, 0));
    if (is_tagged) {
        NodeParams tagged = {.type = NODE_ALLOC, .alloc = params};
        OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &tagged));
        params = tagged.alloc;
    } else {
        OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
    }
    *address = params.address;
    if (is_freed) OK(cuGraphAddMemFreeNode(&last, graph, &node, 1, params.address));
    return graph;
}

static void launching(void)
{
    CUdeviceptr p;
    CUgraphExec exec = captured(60 * MIB, 1000), second, third;
    CHECK(used() == base);
    run(exec);
    CHECK(held(device) == 60 * MIB);
    pays();
    for (int i = 0; i < 30; i++) OK(cuGraphLaunch(exec, stream)); /* one behind the other: the same memory */
    OK(cuStreamSynchronize(stream));
    CHECK(held(device) == 60 * MIB);
    pays();
    trim();
    CHECK(used() == base);
    run(exec);
    /* A second graph uses what the first has left. */
    second = captured(80 * MIB, 1000);
    run(second);
    CHECK(held(device) == 80 * MIB);
    pays();
    /* What graphs hold idle gives way to others. */
    OK(cuMemAlloc_v2(&p, limit - base));
    CHECK(held(device) == 0 && used() == limit);
    EXPECT(OUT_OF_MEMORY, cuGraphLaunch(exec, stream));
    EXPECT(OUT_OF_MEMORY, cuGraphUpload(exec, stream));
    OK(cuMemFree_v2(p));
    run(exec);
    pays();
    OK(cuGraphExecDestroy(exec));
    CHECK(cuGraphExecDestroy(exec) != SUCCESS);
    OK(cuGraphExecDestroy(second));
    pays();
    trim();
    CHECK(used() == base);
    /* Uploaded, and instantiated with an upload. */
    CUgraph graph = built(10 * MIB, 0, 1, 1, &p);
    InstantiateParams params = {.flags = UPLOAD, .stream = stream};
    OK(cuGraphInstantiateWithParams(&third, graph, &params));
    OK(cuGraphUpload(third, stream));
    pays();
    run(third);
    pays();
    CHECK(held(device) == 10 * MIB);
    uint64_t zero = 0;
    OK(cuDeviceSetGraphMemAttribute(device, 3, &zero));
    struct { int result; void *node, *from; } info;
    OK(cuGraphExecUpdate_v2(third, graph, &info));
    run(third);
    OK(cuGraphExecDestroy(third));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(used() == base);
    EXPECT(INVALID_VALUE, cuGraphLaunch(NULL, stream));
    CHECK(cuGraphUpload(third, stream) != SUCCESS);
}

static void refused(void)
{
    CUdeviceptr p;
    CUgraphExec large = captured(limit, 1000), small = captured(20 * MIB, 1000);
    CHECK(used() == base);
    EXPECT(OUT_OF_MEMORY, cuGraphLaunch(large, stream));
    EXPECT(OUT_OF_MEMORY, cuGraphUpload(large, stream));
    pays();
    run(small);
    pays();
    /* Both at once do not fit, one after the other they do. */
    size_t most = (limit - base) / 5 * 3;
    CUgraphExec one = captured(most, 200000000), two = captured(most, 1000);
    CUstream other;
    OK(cuStreamCreate(&other, STREAM_NON_BLOCKING));
    OK(cuGraphLaunch(one, stream));
    EXPECT(OUT_OF_MEMORY, cuGraphLaunch(two, other));
    OK(cuGraphLaunch(one, stream)); /* its own memory is there */
    OK(cuMemAlloc_v2(&p, 20 * MIB));
    OK(cuStreamSynchronize(stream));
    OK(cuGraphLaunch(two, other));
    OK(cuStreamSynchronize(other));
    run(one);
    OK(cuMemFree_v2(p));
    for (int i = 0; i < 5; i++) {
        run(one);
        run(two);
    }
    trim();
    CHECK(used() == base);
    /* Many graphs, each made, launched and destroyed, without ever waiting for all. */
    for (int i = 0; i < 20; i++) {
        CUgraphExec brief = captured(most / 2, 1000);
        run(brief);
        OK(cuGraphExecDestroy(brief));
    }
    trim();
    CHECK(used() == base);
}

static void outlives(void)
{
    CUdeviceptr p, q;
    CUgraph graph = built(50 * MIB, 0, 0, 0, &p), freeing;
    CUgraphExec exec, free_exec;
    CUgraphNode node;
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    run(exec);
    pays();
    CHECK(cuGraphLaunch(exec, stream) != SUCCESS); /* its memory has not been freed */
    pays();
    trim();
    CHECK(used() == base + 50 * MIB);
    OK(cuMemFree_v2(p));
    trim();
    CHECK(used() == base);
    /* Freed in the order of a stream. */
    run(exec);
    OK(launch(spin, stream, 50000000));
    OK(cuMemFreeAsync(p, stream));
    OK(cuDeviceGraphMemTrim(device));
    CHECK(used() >= base + 50 * MIB);
    OK(cuStreamSynchronize(stream));
    trim();
    CHECK(used() == base);
    /* Freed by another graph. */
    run(exec);
    OK(cuGraphCreate(&freeing, 0));
    OK(cuGraphAddMemFreeNode(&node, freeing, NULL, 0, p));
    OK(cuGraphInstantiateWithFlags(&free_exec, freeing, 0));
    run(free_exec);
    trim();
    CHECK(used() == base);
    /* By the launch itself. */
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 1));
    for (int i = 0; i < 10; i++) run(exec);
    CHECK(used() == base + 50 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    trim();
    CHECK(used() == base + 50 * MIB);
    OK(cuMemFree_v2(p));
    trim();
    CHECK(used() == base);
}

static void nested(void)
{
    CUgraphExec inner = captured(30 * MIB, 1000), outer;
    CUgraph graph = NULL;
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    OK(cuGraphLaunch(inner, stream));
    OK(launch(spin, stream, 1000));
    OK(cuStreamEndCapture(stream, &graph));
    CHECK(used() == base);
    OK(cuGraphInstantiateWithFlags(&outer, graph, 0));
    CHECK(used() == base);
    run(outer);
    CHECK(held(device) == 30 * MIB);
    pays();
    OK(cuGraphExecDestroy(outer));
    OK(cuGraphDestroy(graph));
    OK(cuGraphExecDestroy(inner));
    trim();
    CHECK(used() == base);
    /* A node on the other GPU. */
    CUcontext there;
    CUdeviceptr p;
    OK(cuDevicePrimaryCtxRetain(&there, 1));
    OK(cuCtxPushCurrent_v2(there));
    size_t before = used();
    OK(cuCtxPopCurrent_v2(NULL));
    graph = built(30 * MIB, 1, 1, 1, &p);
    OK(cuGraphInstantiateWithFlags(&outer, graph, 0));
    run(outer);
    CHECK(used() == base);
    OK(cuCtxPushCurrent_v2(there));
    CHECK(used() == before + 30 * MIB && held(1) == 30 * MIB);
    OK(cuDeviceGraphMemTrim(1));
    CHECK(used() == before);
    OK(cuCtxPopCurrent_v2(NULL));
    CHECK(used() == base);
}

enum { THREADS = 5 };
static size_t launched, denied;
static sem_t gate;
static pthread_barrier_t all_launched;
static void wait_at_gate(void *unused)
{
    (void)unused;
    while (sem_wait(&gate) != 0) {}
}
static void try_to_launch(CUgraphExec exec, CUstream s)
{
    CUresult code = cuGraphLaunch(exec, s);
    if (code != SUCCESS) EXPECT(OUT_OF_MEMORY, code);
    __atomic_fetch_add(code == SUCCESS ? &launched : &denied, 1, __ATOMIC_RELAXED);
}
static void *storm(void *number)
{
    unsigned seed = (unsigned)(size_t)number * 2654435761u + 1;
    CUstream s;
    OK(cuCtxSetCurrent(context));
    CUgraphExec exec = captured(((size_t)number * 13 + 40) * MIB, 20000);
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    /* First all at once, each behind a closed gate: together they need 330 MiB, so that at least one is refused. */
    OK(cuLaunchHostFunc(s, wait_at_gate, NULL));
    try_to_launch(exec, s);
    if (pthread_barrier_wait(&all_launched) == PTHREAD_BARRIER_SERIAL_THREAD) {
        CHECK(launched >= 2 && denied >= 1 && launched + denied == THREADS);
        for (int i = 0; i < THREADS; i++) sem_post(&gate);
    }
    pthread_barrier_wait(&all_launched);
    for (int i = 0; i < 300; i++) {
        seed = seed * 1103515245 + 12345;
        try_to_launch(exec, s);
        if (seed >> 29 == 0) OK(cuDeviceGraphMemTrim(device));
        if (seed >> 30 == 1) OK(cuStreamSynchronize(s));
    }
    OK(cuStreamSynchronize(s));
    OK(cuGraphExecDestroy(exec));
    OK(cuStreamDestroy_v2(s));
    return NULL;
}
static void threads(void)
{
    pthread_t all[THREADS];
    sem_init(&gate, 0, 0);
    pthread_barrier_init(&all_launched, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, storm, (void *)i);
    for (size_t i = 0; i < THREADS; i++) pthread_join(all[i], NULL);
    /* Each graph fits alone: the last thread, at the latest, has launched more. */
    CHECK(launched > THREADS);
    OK(cuCtxSynchronize());
    trim();
    CHECK(used() == base);
}

/* Holds 20 MiB that live and 40 that lie idle, until it is killed. */
static void hold(void)
{
    CUdeviceptr p;
    CUgraph graph = built(20 * MIB, 0, 0, 0, &p);
    CUgraphExec exec, idle = captured(40 * MIB, 1000);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    run(idle);
    pays();
    printf("holding\n");
    fflush(stdout);
    pause();
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t left;
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuMemGetInfo_v2(&left, &limit));
    base = limit - left;
    if (!strcmp(what, "launch")) launching();
    else if (!strcmp(what, "refused")) refused();
    else if (!strcmp(what, "outlives")) outlives();
    else if (!strcmp(what, "nested")) nested();
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "hold")) hold();
    else CHECK(!"a scenario");
    return finish(what);
}
