/* Graph memory as the driver reports it and as the machine has it, to the byte; child graphs that are moved.
 * CUDA Driver API, "Graph Management"; CUDA C++ Programming Guide, "Graph Memory Nodes". */
#include <stddef.h>
typedef struct {
    int type, reserved[3];
    union {
        long long words[29];
        struct { void *graph; unsigned ownership; } child;
        struct {
            unsigned char pool[88];
            const void *access;
            size_t access_count, bytes;
            unsigned long long address;
        } alloc;
        unsigned long long freed;
    };
    long long reserved2;
} NodeParams;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuGraphAddNode_v2, cuGraphAddNode, 12030,                                                                        \
      (CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, NodeParams *))                               \
    X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000,                                                       \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph))                                                  \
    X(cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec, CUstream))                                                    \
    X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, (CUdevice, int, void *))                      \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))
#include "driver.h"
#include <semaphore.h>
enum { ALLOC = 10, FREE = 11, CHILD = 4, MOVE = 1, USED = 0, RESERVED = 2, AUTO_FREE = 1, SIZE = 5 << 20 };
static sem_t gate;
static void wait_at_gate(void *unused)
{
    while (sem_wait(&gate)) {}
}
static size_t free_now(void)
{
    size_t left = 0, total;
    OK(cuMemGetInfo_v2(&left, &total));
    return left;
}
static uint64_t graph_memory(int attribute)
{
    uint64_t value = 0;
    OK(cuDeviceGetGraphMemAttribute(device, attribute, &value));
    return value;
}
static size_t start;
/* What the attributes say is what the machine has given. */
static void expect(uint64_t used, uint64_t reserved)
{
    CHECK(graph_memory(USED) == used);
    CHECK(graph_memory(RESERVED) == reserved);
    CHECK(start - free_now() == reserved);
}
static NodeParams allocation(void)
{
    NodeParams params = {.type = ALLOC};
    PoolProps pool = {.alloc_type = 1, .location = {1, device}};
    memcpy(params.alloc.pool, &pool, sizeof pool);
    params.alloc.bytes = SIZE;
    return params;
}
int main(void)
{
    setup();
    CUstream stream;
    CUgraph graph, child;
    CUgraphNode alloc, freed, node, inner;
    CUgraphExec exec, other;
    NodeParams params = allocation();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    start = free_now();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddNode_v2(&alloc, graph, NULL, NULL, 0, &params));
    CUdeviceptr address = params.alloc.address;
    OK(cuGraphAddEmptyNode(&node, graph, &alloc, 1));
    expect(0, 0);
    OK(cuGraphInstantiateWithFlags(&exec, graph, AUTO_FREE));
    EXPECT(INVALID_VALUE, cuGraphInstantiateWithFlags(&other, graph, 0)); /* one at a time */
    expect(0, 0);
    OK(cuGraphUpload(exec, stream));
    expect(0, 6 << 20);
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    expect(SIZE, 6 << 20);
    OK(cuGraphLaunch(exec, stream)); /* frees by itself first */
    OK(cuStreamSynchronize(stream));
    expect(SIZE, 6 << 20);
    OK(cuDeviceGraphMemTrim(device)); /* in use */
    expect(SIZE, 6 << 20);
    OK(cuMemFreeAsync(address, stream));
    OK(cuStreamSynchronize(stream));
    expect(0, 6 << 20);
    OK(cuDeviceGraphMemTrim(device));
    expect(0, 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    /* A child graph with allocations can be moved, not copied. */
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&child, 0));
    params = allocation();
    OK(cuGraphAddNode_v2(&inner, child, NULL, NULL, 0, &params));
    NodeParams end = {.type = FREE, .freed = params.alloc.address};
    OK(cuGraphAddNode_v2(&freed, child, &inner, NULL, 1, &end));
    EXPECT(INVALID_VALUE, cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    NodeParams move = {.type = CHILD, .child = {child, MOVE}};
    NodeParams self = {.type = CHILD, .child = {graph, MOVE}};
    EXPECT(INVALID_VALUE, cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &self));
    OK(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &move));
    EXPECT(INVALID_VALUE, cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &move)); /* belongs to a node already */
    EXPECT(INVALID_VALUE, cuGraphDestroy(child));
    EXPECT(INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, child, 0));
    params = allocation();
    EXPECT(INVALID_VALUE, cuGraphAddNode_v2(&inner, child, NULL, NULL, 0, &params));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(INVALID_VALUE, cuGraphInstantiateWithFlags(&other, graph, 0));
    OK(cuGraphLaunch(exec, stream));
    OK(cuStreamSynchronize(stream));
    expect(0, 6 << 20);
    OK(cuDeviceGraphMemTrim(device));
    expect(0, 0);
    /* What a graph needs that is scheduled to run is not given back. */
    sem_init(&gate, 0, 0);
    OK(cuLaunchHostFunc(stream, wait_at_gate, NULL));
    OK(cuGraphLaunch(exec, stream));
    OK(cuDeviceGraphMemTrim(device));
    expect(SIZE, 6 << 20);
    sem_post(&gate);
    OK(cuStreamSynchronize(stream));
    expect(0, 6 << 20);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    EXPECT(INVALID_VALUE, cuGraphDestroy(child)); /* went with its parent */
    OK(cuDeviceGraphMemTrim(device));
    expect(0, 0);
    return finish("sim_graph_memory");
}
