/* Stream capture and its error codes. CUDA Driver API: cuStreamBeginCapture, cuStreamEndCapture,
 * cuThreadExchangeStreamCaptureMode; CUDA programming guide: "Creating a Graph Using Stream Capture". */
#include "../driver.h"
#include <pthread.h>
static CUstream shared_stream;
static CUresult end_code;
static void *end_elsewhere(void *unused)
{
    (void)unused;
    CUgraph graph = NULL;
    cuCtxSetCurrent(context);
    end_code = cuStreamEndCapture(shared_stream, &graph);
    return NULL;
}
int main(void)
{
    setup();
    CUstream s, t;
    CUevent fork_event, join_event;
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;
    int status = -1;
    size_t nodes = 0;
    OK(cuStreamCreate(&s, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork_event, EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join_event, EVENT_DISABLE_TIMING));
    /* The legacy stream cannot be captured; a capture that was not begun cannot end. */
    EXPECT(CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(STREAM_LEGACY, CAPTURE_GLOBAL));
    EXPECT(ILLEGAL_STATE, cuStreamEndCapture(s, &graph));
    /* Captured work does not run: it becomes nodes. */
    CUdeviceptr p = 0;
    OK(cuMemAlloc_v2(&p, 4096));
    OK(cuMemsetD32_v2(p, 1, 1024));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    OK(cuStreamIsCapturing(s, &status));
    CHECK(status == 1);
    OK(launch(spin, s, 1000));
    OK(cuMemsetD32Async(p, 2, 1024, s));
    /* A second stream joins through an event, and must be joined again before the end. */
    OK(cuEventRecord(fork_event, s));
    OK(cuStreamWaitEvent(t, fork_event, 0));
    OK(launch(spin, t, 1000));
    OK(cuStreamIsCapturing(t, &status));
    CHECK(status == 1);
    OK(cuEventRecord(join_event, t));
    OK(cuStreamWaitEvent(s, join_event, 0));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuStreamIsCapturing(t, &status));
    CHECK(status == 0);
    OK(cuGraphGetNodes(graph, NULL, &nodes));
    CHECK(nodes == 3);
    unsigned value = 0;
    OK(cuMemcpyDtoH_v2(&value, p, 4));
    CHECK(value == 1);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH_v2(&value, p, 4));
    CHECK(value == 2);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    /* Synchronising a capturing stream is not permitted and invalidates the capture. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    EXPECT(CAPTURE_UNSUPPORTED, cuStreamSynchronize(s));
    EXPECT(CAPTURE_INVALIDATED, launch(spin, s, 0));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    CHECK(graph == NULL);
    OK(launch(spin, s, 0)); /* the stream works again */
    /* Not joined. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuEventRecord(fork_event, s));
    OK(cuStreamWaitEvent(t, fork_event, 0));
    OK(launch(spin, t, 0));
    EXPECT(CAPTURE_UNJOINED, cuStreamEndCapture(s, &graph));
    /* Work in the legacy stream would wait for the capturing (blocking) one: it is refused, and the capture broken. */
    CUstream blocking;
    OK(cuStreamCreate(&blocking, 0));
    OK(cuStreamBeginCapture_v2(blocking, CAPTURE_RELAXED));
    EXPECT(CAPTURE_IMPLICIT, launch(spin, NULL, 0));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
    /* An event recorded in a capture has no completion to ask for. */
    OK(cuStreamBeginCapture_v2(s, CAPTURE_RELAXED));
    OK(cuEventRecord(fork_event, s));
    EXPECT(CAPTURED_EVENT, cuEventQuery(fork_event));
    CHECK(cuStreamEndCapture(s, &graph) != SUCCESS || graph != NULL);
    /* Ending it on another thread, unless relaxed. */
    shared_stream = s;
    pthread_t thread;
    OK(cuStreamBeginCapture_v2(s, CAPTURE_THREAD_LOCAL));
    pthread_create(&thread, NULL, end_elsewhere, NULL);
    pthread_join(thread, NULL);
    CHECK(end_code == CAPTURE_WRONG_THREAD);
    cuStreamEndCapture(s, &graph);
    /* A potentially unsafe call is refused during a global capture of any thread, unless the thread is relaxed. */
    CUdeviceptr q = 0;
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    EXPECT(CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&q, 4096));
    EXPECT(CAPTURE_INVALIDATED, cuStreamEndCapture(s, &graph));
    OK(cuStreamBeginCapture_v2(s, CAPTURE_GLOBAL));
    int mode = CAPTURE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == CAPTURE_GLOBAL);
    OK(cuMemAlloc_v2(&q, 4096));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuMemFree_v2(q));
    return finish("capture");
}
