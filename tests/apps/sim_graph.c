/* Graphs in depth: every kind of node, child graphs, updates, memory nodes.
 * CUDA Driver API: "Graph Management". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000,                                                               \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const Copy3D *, CUcontext))                                \
    X(cuGraphAddHostNode, cuGraphAddHostNode, 10000,                                                                   \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const HostNodeParams *))                                   \
    X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode, 10000,                                                       \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUgraph))                                                  \
    X(cuGraphChildGraphNodeGetGraph, cuGraphChildGraphNodeGetGraph, 10000, (CUgraphNode, CUgraph *))                   \
    X(cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010,                                                     \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent))                                                  \
    X(cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010,                                                         \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent))                                                  \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040,                                                           \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, AllocNodeParams *))                                        \
    X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040,                                                             \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                                              \
    X(cuGraphNodeGetType, cuGraphNodeGetType, 10000, (CUgraphNode, int *))                                             \
    X(cuGraphKernelNodeGetParams_v2, cuGraphKernelNodeGetParams, 12000, (CUgraphNode, KernelNodeParams *))             \
    X(cuGraphMemsetNodeGetParams, cuGraphMemsetNodeGetParams, 10000, (CUgraphNode, MemsetNodeParams *))                \
    X(cuGraphExecUpdate_v2, cuGraphExecUpdate, 12000, (CUgraphExec, CUgraph, UpdateInfo *))                            \
    X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000, (CUgraphExec *, CUgraph, InstantiateParams *))\
    X(cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec, CUstream))                                                    \
    X(cuGraphAddNode, cuGraphAddNode, 12020, (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, NodeParams *))      \
    X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040, (CUdevice, int, void *))                      \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040, (CUdevice))
typedef struct Copy3D_ Copy3D;
typedef struct { void (*fn)(void *); void *data; } HostNodeParams;
typedef struct AllocNodeParams_ AllocNodeParams;
typedef struct UpdateInfo_ UpdateInfo;
typedef struct InstantiateParams_ InstantiateParams;
typedef struct NodeParams_ NodeParams;
#include "driver.h"
struct Copy3D_ {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    unsigned srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
    unsigned dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
};
struct AllocNodeParams_ { PoolProps props; const AccessDesc *access; size_t access_count, bytes; CUdeviceptr address; };
struct UpdateInfo_ { unsigned result; CUgraphNode node, from; };
struct InstantiateParams_ { unsigned long long flags; CUstream stream; CUgraphNode node; unsigned result; };
struct NodeParams_ { unsigned type; int reserved[3]; union { long long space[29]; MemsetNodeParams set; } value; long long reserved2; };
static int order[8], calls;
static void note(void *which) { order[calls++ & 7] = (int)(intptr_t)which; }
static KernelNodeParams spin_for(uint64_t *ns)
{
    static void *params[1];
    params[0] = ns;
    KernelNodeParams kernel = {spin, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
    return kernel;
}
static float run_ms(CUgraphExec exec, CUstream s)
{
    CUevent start, stop;
    float ms = -1;
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&stop, 0));
    OK(launch(spin, s, 30000000)); /* all below is queued behind it, so the host's speed is not measured */
    OK(cuEventRecord(start, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventRecord(stop, s));
    OK(cuEventSynchronize(stop));
    OK(cuEventElapsedTime(&ms, start, stop));
    OK(cuEventDestroy_v2(start));
    OK(cuEventDestroy_v2(stop));
    return ms;
}
static unsigned word(CUdeviceptr p)
{
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, p, 4));
    return value;
}
/* host -> device -> set one word -> device -> host, with a host function at each end. */
static void contents(CUstream s)
{
    CUgraph graph;
    CUgraphNode begin, in, set, out, end;
    CUgraphExec exec;
    CUdeviceptr p;
    unsigned source[64], result[64] = {0};
    for (int i = 0; i < 64; i++) source[i] = i;
    OK(cuMemAlloc_v2(&p, sizeof source));
    OK(cuGraphCreate(&graph, 0));
    HostNodeParams host = {note, (void *)1};
    OK(cuGraphAddHostNode(&begin, graph, NULL, 0, &host));
    Copy3D copy = {0};
    copy.srcMemoryType = MEMORY_HOST, copy.srcHost = source, copy.dstMemoryType = MEMORY_DEVICE, copy.dstDevice = p;
    copy.WidthInBytes = sizeof source, copy.Height = copy.Depth = 1;
    OK(cuGraphAddMemcpyNode(&in, graph, &begin, 1, &copy, context));
    MemsetNodeParams fill = {p + 4, 0, 77, 4, 1, 1};
    OK(cuGraphAddMemsetNode(&set, graph, &in, 1, &fill, context));
    memset(&copy, 0, sizeof copy);
    copy.srcMemoryType = MEMORY_DEVICE, copy.srcDevice = p, copy.dstMemoryType = MEMORY_HOST, copy.dstHost = result;
    copy.WidthInBytes = sizeof source, copy.Height = copy.Depth = 1;
    OK(cuGraphAddMemcpyNode(&out, graph, &set, 1, &copy, context));
    host.data = (void *)2;
    OK(cuGraphAddHostNode(&end, graph, &out, 1, &host));
    int kind = -1;
    OK(cuGraphNodeGetType(out, &kind));
    CHECK(kind == 1);
    MemsetNodeParams back;
    OK(cuGraphMemsetNodeGetParams(set, &back));
    CHECK(back.dst == p + 4 && back.value == 77);
    EXPECT(INVALID_VALUE, cuGraphMemsetNodeGetParams(out, &back));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphUpload(exec, s));
    calls = 0;
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(result[1] == 77 && result[0] == 0 && result[63] == 63);
    CHECK(calls == 2 && order[0] == 1 && order[1] == 2);
    OK(cuGraphExecDestroy(exec));
    EXPECT(INVALID_VALUE, cuGraphLaunch(exec, s));
    OK(cuGraphAddDependencies(graph, &in, &out, 1));
    EXPECT(INVALID_VALUE, cuGraphAddDependencies(graph, &in, &out, 1));
    OK(cuGraphDestroy(graph));
    EXPECT(INVALID_VALUE, cuGraphDestroy(graph));
    EXPECT(INVALID_VALUE, cuGraphNodeGetType(in, &kind));
    OK(cuMemFree_v2(p));
}
/* A kernel, two side by side behind it, and one that waits for `joined` of them. */
static CUgraph diamond(uint64_t ns, CUgraphNode nodes[4], size_t joined)
{
    CUgraph graph;
    KernelNodeParams kernel = spin_for(&ns);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &kernel));
    OK(cuGraphAddKernelNode_v2(&nodes[1], graph, &nodes[0], 1, &kernel));
    OK(cuGraphAddKernelNode_v2(&nodes[2], graph, &nodes[0], 1, &kernel));
    OK(cuGraphAddKernelNode_v2(&nodes[3], graph, &nodes[1], joined, &kernel));
    return graph;
}
/* Time: branches side by side, chains one after the other, child graphs, updates. */
static void durations(CUstream s)
{
    CUgraph copied, child = NULL;
    CUgraphNode nodes[4], changed[4], top, bottom;
    CUgraphExec exec;
    uint64_t ns = 10000000;
    KernelNodeParams back;
    CUgraph graph = diamond(ns, nodes, 2), other = diamond(ns / 2, changed, 2), loose;
    OK(cuGraphKernelNodeGetParams_v2(nodes[0], &back));
    EXPECT(INVALID_VALUE, cuGraphAddKernelNode_v2(&top, graph, (CUgraphNode[]){nodes[1], nodes[1]}, 2, &back));
    CHECK(back.func == spin && *(uint64_t *)back.params[0] == ns && back.gridX == 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    float ms = run_ms(exec, s);
    CHECK(ms >= 29.9f && ms < 35);
    /* An update with the same shape, and one with another. */
    UpdateInfo info;
    OK(cuGraphExecUpdate_v2(exec, other, &info));
    CHECK(info.result == 0);
    ms = run_ms(exec, s);
    CHECK(ms >= 14.9f && ms < 20);
    loose = diamond(ns, changed, 1);
    EXPECT(910 /* GRAPH_EXEC_UPDATE_FAILURE */, cuGraphExecUpdate_v2(exec, loose, &info));
    CHECK(info.result == 2 && info.node == changed[3]);
    OK(cuGraphDestroy(loose));
    OK(cuGraphExecDestroy(exec));
    /* A child graph is a copy; two launches in two streams follow each other. */
    OK(cuGraphCreate(&copied, 0));
    OK(cuGraphAddChildGraphNode(&top, copied, NULL, 0, other));
    OK(cuGraphAddChildGraphNode(&bottom, copied, &top, 1, other));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(graph));
    OK(cuGraphChildGraphNodeGetGraph(top, &child));
    EXPECT(INVALID_VALUE, cuGraphDestroy(child));
    OK(cuGraphInstantiateWithFlags(&exec, copied, 0));
    ms = run_ms(exec, s);
    CHECK(ms >= 29.9f && ms < 35);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(copied));
    EXPECT(INVALID_VALUE, cuGraphChildGraphNodeGetGraph(top, &child));
    /* A cycle is named. */
    InstantiateParams params = {0};
    CUgraphNode a, b;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&a, graph, NULL, 0));
    OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
    OK(cuGraphInstantiateWithParams(&exec, graph, &params));
    CHECK(params.result == 0);
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphAddDependencies(graph, &b, &a, 1));
    EXPECT(INVALID_VALUE, cuGraphInstantiateWithParams(&exec, graph, &params));
    CHECK(params.result == 2 && (params.node == a || params.node == b));
    OK(cuGraphDestroy(graph));
}
static void events(CUstream s, CUstream t)
{
    CUgraph graph;
    CUgraphNode wait, kernel_node, record;
    CUgraphExec exec;
    CUevent before, after;
    uint64_t ns = 2000000;
    KernelNodeParams kernel = spin_for(&ns);
    OK(cuEventCreate(&before, 0));
    OK(cuEventCreate(&after, 0));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEventWaitNode(&wait, graph, NULL, 0, before));
    OK(cuGraphAddKernelNode_v2(&kernel_node, graph, &wait, 1, &kernel));
    OK(cuGraphAddEventRecordNode(&record, graph, &kernel_node, 1, after));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(launch(spin, t, 5000000));
    OK(cuEventRecord(before, t));
    OK(cuGraphLaunch(exec, s));
    OK(cuEventSynchronize(after));
    float ms = 0;
    OK(cuEventElapsedTime(&ms, before, after));
    CHECK(ms >= 1.99f && ms < 30);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}
static void memory(CUstream s)
{
    CUgraph graph;
    CUgraphNode allocate, set, release;
    CUgraphExec exec;
    unsigned long long used = 9, reserved = 9;
    AllocNodeParams params = {0};
    params.props.alloc_type = 1, params.props.location.type = 1, params.bytes = 4 << 20;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &params));
    CHECK(params.address != 0);
    NodeParams tagged = {0};
    tagged.type = 2;
    MemsetNodeParams fill = {params.address, 0, 5, 4, 1 << 20, 1};
    tagged.value.set = fill;
    OK(cuGraphAddNode(&set, graph, &allocate, 1, &tagged));
    EXPECT(INVALID_VALUE, cuGraphAddMemFreeNode(&release, graph, &set, 1, params.address + 4));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(word(params.address + 8) == 5); /* not freed by the graph: usable behind it */
    OK(cuDeviceGetGraphMemAttribute(device, 0, &used));
    CHECK(used == 4 << 20);
    EXPECT(INVALID_VALUE, cuGraphLaunch(exec, s)); /* still allocated */
    OK(cuMemFreeAsync(params.address, s));
    OK(cuStreamSynchronize(s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemFree_v2(params.address));
    OK(cuDeviceGetGraphMemAttribute(device, 0, &used));
    OK(cuDeviceGetGraphMemAttribute(device, 2, &reserved));
    CHECK(used == 0 && reserved >= 4 << 20);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 1 /* free at the next launch */));
    for (int i = 0; i < 3; i++) OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(word(params.address) == 5);
    OK(cuMemFree_v2(params.address));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuDeviceGraphMemTrim(device));
    OK(cuDeviceGetGraphMemAttribute(device, 2, &reserved));
    CHECK(reserved == 0);
    /* More than there is: the launch says so, and nothing is kept. */
    size_t free_bytes = 0, total = 0;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    params.bytes = total;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &params));
    OK(cuGraphAddMemFreeNode(&release, graph, &allocate, 1, params.address));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT(OUT_OF_MEMORY, cuGraphLaunch(exec, s));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    size_t after = 0;
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == free_bytes);
}
/* A captured cooperative launch keeps its attribute when its graph is updated; the per-thread stream captures. */
static void cooperative(CUstream s)
{
    uint64_t ns = 1000000;
    void *params[] = {&ns};
    CUgraph graph;
    CUgraphNode nodes[2];
    CUgraphExec exec;
    size_t count = 2;
    OK(cuStreamBeginCapture_v2(STREAM_PER_THREAD, CAPTURE_RELAXED));
    OK(cuLaunchCooperativeKernel(spin, 2, 1, 1, 32, 1, 1, 0, STREAM_PER_THREAD, params));
    OK(cuStreamEndCapture(STREAM_PER_THREAD, &graph));
    OK(cuGraphGetNodes(graph, nodes, &count));
    CHECK(count == 1 && nodes[1] == NULL);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    UpdateInfo info;
    OK(cuGraphExecUpdate_v2(exec, graph, &info));
    float ms = run_ms(exec, s);
    CHECK(ms >= 0.9f && ms < 3);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}
int main(void)
{
    setup();
    CUstream s, t;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, STREAM_NON_BLOCKING));
    contents(s);
    durations(s);
    events(s, t);
    memory(s);
    cooperative(s);
    OK(cuCtxSynchronize());
    return finish("sim_graph");
}
