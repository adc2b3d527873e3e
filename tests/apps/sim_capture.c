/* Stream capture in depth: modes and threads, joins, what breaks a capture, captured copies, allocations, launches.
 * CUDA Driver API: "Stream Management"; CUDA C++ Programming Guide: "Creating a Graph Using Stream Capture". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,                                                 \
      (CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int))                                             \
    X(cuEventRecordWithFlags, cuEventRecordWithFlags, 11010, (CUevent, CUstream, unsigned))                            \
    X(cuStreamAddCallback, cuStreamAddCallback, 5000,                                                                  \
      (CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned))
#include "driver.h"
#include <pthread.h>
static CUresult foreign_code;
static CUevent plain_event;
static int foreign_mode;
static void *foreign_query(void *unused)
{
    (void)unused;
    int mode = foreign_mode;
    cuCtxSetCurrent(context);
    cuThreadExchangeStreamCaptureMode(&mode);
    foreign_code = cuEventQuery(plain_event);
    return NULL;
}
static CUresult query_elsewhere(int mode)
{
    pthread_t thread;
    foreign_mode = mode;
    pthread_create(&thread, NULL, foreign_query, NULL);
    pthread_join(thread, NULL);
    return foreign_code;
}
static void callback(CUstream s, CUresult r, void *d) { (void)s, (void)r, (void)d; }
static void note(void *data) { ++*(int *)data; }
int main(void)
{
    setup();
    CUstream s, t, blocking;
    CUevent e, f;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    int status = -1;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&blocking, 0));
    OK(cuEventCreate(&e, 0));
    OK(cuEventCreate(&f, 0));
    OK(cuEventCreate(&plain_event, 0));
    OK(cuEventRecord(plain_event, t));
    OK(cuStreamSynchronize(t));
    /* A query elsewhere breaks a global capture, unless that thread or the capture says otherwise. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    EXPECT(ILLEGAL_STATE, cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    EXPECT(CAPTURE_UNSUPPORTED, query_elsewhere(CAPTURE_GLOBAL));
    OK(cuStreamIsCapturing(s, &status));
    CHECK(status == 2);
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(query_elsewhere(CAPTURE_THREAD_LOCAL));
    OK(query_elsewhere(CAPTURE_RELAXED));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    OK(query_elsewhere(CAPTURE_GLOBAL));
    EXPECT(CAPTURE_UNSUPPORTED, cuEventQuery(plain_event)); /* but not in the capturing thread */
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(query_elsewhere(CAPTURE_GLOBAL));
    OK(cuEventQuery(plain_event));
    /* Waits do not cross the boundary. */
    EXPECT(CAPTURE_ISOLATION, cuStreamWaitEvent(s, plain_event, 0));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuStreamWaitEvent(s, plain_event, 1 /* external */));
    OK(cuEventRecordWithFlags(f, s, 1));
    OK(cuStreamEndCapture(s, &graph));
    size_t count = 0;
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 2);
    OK(cuGraphDestroy(graph));
    EXPECT(INVALID_VALUE, cuStreamWaitEvent(s, plain_event, 1)); /* "invalid outside of stream capture" */
    /* Two captures do not merge. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuStreamBeginCapture_v2(t, CAPTURE_RELAXED));
    OK(cuEventRecord(e, s));
    EXPECT(CAPTURE_MERGE, cuStreamWaitEvent(t, e, 0));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(t, &graph));
    /* The end belongs to the stream of the beginning. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    EXPECT(CAPTURE_UNMATCHED, cuStreamEndCapture(t, &graph));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamQuery(t));
    EXPECT(CAPTURED_EVENT, cuEventQuery(e)); /* until it is recorded anew */
    EXPECT(CAPTURED_EVENT, cuEventSynchronize(e));
    OK(cuEventRecord(e, t));
    OK(cuEventSynchronize(e));
    /* What a capturing stream does not take. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    EXPECT(CAPTURE_UNSUPPORTED, cuStreamAddCallback(s, callback, NULL, 0));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    EXPECT(CAPTURE_UNSUPPORTED, cuStreamQuery(s));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    EXPECT(CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    /* The legacy stream beside a capturing blocking stream: a question is answered with 906 and breaks nothing. */
    OK(cuStreamBeginCapture_v2(blocking, CAPTURE_RELAXED));
    EXPECT(CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    OK(cuStreamIsCapturing(blocking, &status));
    CHECK(status == 1);
    CUdeviceptr p = 0, q = 0;
    OK(cuMemAlloc_v2(&p, 4096)); /* relaxed */
    EXPECT(CAPTURE_IMPLICIT, cuMemsetD8_v2(p, 0, 4096));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    OK(cuMemsetD8_v2(p, 0, 4096));
    /* Copies from the host, sets, copies back, host functions: all run when the graph does, with its contents. */
    unsigned in[256], out[256] = {0};
    int notes = 0;
    for (int i = 0; i < 256; i++) in[i] = i;
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(cuMemcpyHtoDAsync_v2(p, in, sizeof in, s));
    OK(cuMemsetD32Async(p, 0xabcd, 1, s));
    OK(launch(spin, s, 1000));
    OK(cuMemcpyDtoHAsync_v2(out, p, sizeof out, s));
    OK(cuLaunchHostFunc(s, note, &notes));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 5);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(out[7] == 0);
    for (int round = 1; round <= 3; round++) {
        in[7] = 100 * round; /* read when the graph runs */
        OK(cuGraphLaunch(exec, t));
        OK(cuStreamSynchronize(t));
        CHECK(out[0] == 0xabcd && out[7] == 100u * round && out[255] == 255 && notes == round);
    }
    /* A graph launched into a capturing stream becomes a node. */
    CUgraph outer = NULL;
    CUgraphExec outer_exec = NULL;
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(cuGraphLaunch(exec, s));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamEndCapture(s, &outer));
    OK(cuGraphGetNodes(outer, NULL, &count));
    CHECK(count == 2);
    OK(cuGraphInstantiateWithFlags(&outer_exec, outer, 0));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphLaunch(outer_exec, s));
    OK(cuStreamSynchronize(s));
    CHECK(notes == 5);
    OK(cuGraphExecDestroy(outer_exec));
    OK(cuGraphDestroy(outer));
    OK(cuGraphDestroy(graph));
    /* Allocations in a capture are nodes; the address is fixed. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(cuMemAllocAsync(&q, 1 << 20, s));
    OK(cuMemsetD32Async(q, 42, 1 << 18, s));
    OK(cuMemcpyDtoHAsync_v2(out, q, sizeof out, s));
    OK(cuMemFreeAsync(q, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 4);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int round = 0; round < 3; round++) OK(cuGraphLaunch(exec, s)); /* without waiting in between */
    OK(cuStreamSynchronize(s));
    CHECK(out[0] == 42 && out[255] == 42);
    CUgraphExec second = NULL;
    EXPECT(INVALID_VALUE, cuGraphInstantiateWithFlags(&second, graph, 0)); /* one instance of such a graph */
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&second, graph, 0));
    OK(cuGraphExecDestroy(second));
    OK(cuGraphDestroy(graph));
    /* Into a graph that is there. */
    CUgraph into = NULL;
    CUgraphNode root;
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddEmptyNode(&root, graph, NULL, 0));
    OK(cuStreamBeginCaptureToGraph(s, graph, &root, NULL, 1, CAPTURE_RELAXED));
    OK(launch(spin, s, 0));
    EXPECT(ILLEGAL_STATE, cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuStreamEndCapture(s, &into));
    CHECK(into == graph);
    OK(cuGraphGetNodes(graph, NULL, &count));
    CHECK(count == 2);
    OK(cuGraphDestroy(graph));
    /* A capture whose stream is destroyed leaves nothing behind. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(cuStreamDestroy_v2(s));
    OK(cuMemFree_v2(p));
    OK(cuCtxSynchronize());
    return finish("sim_capture");
}
