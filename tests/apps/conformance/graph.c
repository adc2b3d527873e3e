/* Graphs built by hand. CUDA Driver API: "Graph Management". */
#include "../driver.h"
int main(void)
{
    setup();
    CUstream s;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    CUgraphNode first, second, third;
    CUevent start, stop;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&stop, 0));
    CUdeviceptr p = 0;
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemsetD32_v2(p, 0, 1024));
    EXPECT(INVALID_VALUE, cuGraphCreate(NULL, 0));
    OK(cuGraphCreate(&graph, 0));
    uint64_t ns = 5000000;
    void *params[] = {&ns};
    KernelNodeParams kernel = {spin, 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
    OK(cuGraphAddKernelNode_v2(&first, graph, NULL, 0, &kernel));
    ns = 0; /* arguments were copied */
    MemsetNodeParams set = {p, 0, 0x77, 4, 1024, 1};
    OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context));
    OK(cuGraphAddEmptyNode(&third, graph, &second, 1));
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 3);
    EXPECT(INVALID_VALUE, cuGraphAddDependencies(graph, &first, &first, 1)); /* not on itself */
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph)); /* the executable graph stands on its own */
    OK(cuEventRecord(start, s));
    for (int i = 0; i < 4; i++) OK(cuGraphLaunch(exec, s));
    OK(cuEventRecord(stop, s));
    OK(cuStreamSynchronize(s));
    float ms = 0;
    OK(cuEventElapsedTime(&ms, start, stop));
    CHECK(ms >= 19.9f && ms < 500);
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, p + 4092, 4));
    CHECK(value == 0x77);
    OK(cuGraphExecDestroy(exec));
    /* A cycle is refused at the latest when it is instantiated. */
    CUgraph loop = NULL;
    OK(cuGraphCreate(&loop, 0));
    OK(cuGraphAddEmptyNode(&first, loop, NULL, 0));
    OK(cuGraphAddEmptyNode(&second, loop, &first, 1));
    CUresult added = cuGraphAddDependencies(loop, &second, &first, 1);
    CHECK(added == INVALID_VALUE || cuGraphInstantiateWithFlags(&exec, loop, 0) == INVALID_VALUE);
    OK(cuGraphDestroy(loop));
    OK(cuMemFree_v2(p));
    return finish("graph");
}
