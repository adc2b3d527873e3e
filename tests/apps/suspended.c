/* A process whose GPU memory moves away and comes back at its next call.
 *   suspended [MIB]    of memory with a pattern (8)
 * Prints "ready"; then, for each line on stdin: "CALL" (see `calls`) makes that call first -> "CALL CODE intact|damaged"; "all"
 * makes each of them, each in a thread of its own, all at once; "work SECONDS" launches and waits for that long -> "work STEPS
 * LONGEST_MS intact|damaged"; "capture" begins the capture of a stream and "captured" ends it and launches the graph -> "CODE";
 * "fill" writes a new pattern; "hold MIB" allocates -> "hold CODE"; "managed", "share" take memory that does not move; "busy"
 * keeps the GPU at work for a long time; "restore" restores its own checkpoint -> "restore CODE"; "calls" prints their names. */
#include "driver.h"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#define BYTES (8u << 20)
typedef struct { char bytes[64]; } IpcHandle;
static CUresult (*ipc_get)(IpcHandle *, CUdeviceptr);
static CUresult (*restore)(int pid, void *arguments);
static CUdeviceptr data, other;
static size_t blocks = 1; /* of BYTES, in `data` */
static CUstream stream;
static CUevent begin, end;
static CUgraphExec graph;
static unsigned pattern = 0x5eed;

static CUresult first_stream_query(void) { return cuStreamQuery(stream); }
static CUresult first_stream_synchronize(void) { return cuStreamSynchronize(stream); }
static CUresult first_event_query(void) { return cuEventQuery(end); }
static CUresult first_event_synchronize(void) { return cuEventSynchronize(end); }
static CUresult first_event_elapsed(void)
{
    float ms = 0;
    return cuEventElapsedTime(&ms, begin, end);
}
static CUresult first_event_record(void) { return cuEventRecord(end, stream); }
static CUresult first_event_create(void)
{
    CUevent event;
    CUresult code = cuEventCreate(&event, 0);
    return code ? code : cuEventDestroy_v2(event);
}
static CUresult first_stream_create(void)
{
    CUstream more;
    CUresult code = cuStreamCreate(&more, 0);
    return code ? code : cuStreamDestroy_v2(more);
}
static CUresult first_context_synchronize(void) { return cuCtxSynchronize(); }
static CUresult first_memory_info(void)
{
    size_t left, total;
    return cuMemGetInfo_v2(&left, &total);
}
static CUresult first_alloc(void)
{
    CUdeviceptr more;
    CUresult code = cuMemAlloc_v2(&more, 1 << 20);
    return code ? code : cuMemFree_v2(more);
}
static CUresult first_host_alloc(void)
{
    void *host;
    CUresult code = cuMemHostAlloc(&host, 4096, 0);
    return code ? code : cuMemFreeHost(host);
}
static CUresult first_copy(void)
{
    unsigned word;
    return cuMemcpyDtoH_v2(&word, data, sizeof word);
}
static CUresult first_copy_device(void) { return cuMemcpyDtoD_v2(other, data, BYTES / 2); }
static CUresult first_set(void) { return cuMemsetD8Async(other, 0, 4096, stream); }
static CUresult first_launch(void) { return launch(spin, stream, 1000); }
static CUresult first_graph(void) { return cuGraphLaunch(graph, stream); }
static CUresult first_module(void)
{
    CUmodule more;
    CUresult code = cuModuleLoadData(&more, SPIN_PTX);
    return code ? code : cuModuleUnload(more);
}
static CUresult first_init(void) { return cuInit(0); }
static CUresult first_context(void)
{
    CUcontext more;
    CUresult code = cuCtxCreate_v2(&more, 0, device);
    return code ? code : cuCtxDestroy_v2(more);
}

static const struct { const char *name; CUresult (*make)(void); } calls[] = {
    {"stream-query", first_stream_query}, {"stream-synchronize", first_stream_synchronize},
    {"event-query", first_event_query}, {"event-synchronize", first_event_synchronize},
    {"event-elapsed", first_event_elapsed}, {"event-record", first_event_record}, {"event-create", first_event_create},
    {"stream-create", first_stream_create}, {"context-synchronize", first_context_synchronize},
    {"memory-info", first_memory_info}, {"alloc", first_alloc}, {"host-alloc", first_host_alloc}, {"copy", first_copy},
    {"copy-device", first_copy_device}, {"set", first_set}, {"launch", first_launch}, {"graph", first_graph},
    {"module", first_module}, {"init", first_init}, {"context", first_context},
};
#define CALLS (sizeof calls / sizeof *calls)

/* A query while work is on the way is no error. */
static CUresult made(size_t at)
{
    CUresult code = calls[at].make();
    int is_query = !strcmp(calls[at].name, "stream-query") || !strncmp(calls[at].name, "event-", 6);
    return is_query && code == NOT_READY ? SUCCESS : code;
}
static const char *state(void)
{
    static unsigned host[BYTES / 4];
    int is_intact = 1;
    for (size_t block = 0; block < blocks; block++) {
        is_intact &= cuMemcpyDtoH_v2(host, data + block * BYTES, BYTES) == SUCCESS;
        for (size_t i = 0; i < BYTES / 4; i++) is_intact &= host[i] == pattern;
    }
    return is_intact && !failures ? "intact" : "damaged";
}
static void *in_thread(void *at)
{
    if (cuCtxSetCurrent(context)) return "no context";
    return made((size_t)at) ? (void *)calls[(size_t)at].name : NULL;
}
static void all(void)
{
    pthread_t threads[CALLS];
    void *failed = NULL;
    for (size_t i = 0; i < CALLS; i++) CHECK(!pthread_create(&threads[i], NULL, in_thread, (void *)i));
    for (size_t i = 0; i < CALLS; i++) {
        void *own;
        pthread_join(threads[i], &own);
        if (own) failed = own;
    }
    printf("all %s %s\n", failed ? (char *)failed : "0", state());
}
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
/* Kernels of 1 ms, each waited for, and a word copied after each. */
static void at_work(double seconds)
{
    double start = now_ms(), before = start, longest = 0;
    unsigned steps = 0, word;
    while (before - start < seconds * 1e3 && !failures) {
        OK(launch(spin, stream, 1000000));
        OK(cuGraphLaunch(graph, stream));
        OK(cuStreamSynchronize(stream));
        OK(cuMemcpyDtoH_v2(&word, data, sizeof word));
        CHECK(word == pattern);
        double now = now_ms();
        if (now - before > longest) longest = now - before;
        before = now;
        steps++;
    }
    printf("work %u %.0f %s\n", steps, longest, state());
}
static CUresult captured(void)
{
    CUgraph made;
    CUgraphExec replayed;
    OK(launch(spin, stream, 1000));
    OK(cuStreamEndCapture(stream, &made));
    OK(cuGraphInstantiateWithFlags(&replayed, made, 0));
    OK(cuGraphLaunch(replayed, stream));
    return cuStreamSynchronize(stream);
}
static void prepare(void)
{
    CUgraph made;
    CUgraphNode node;
    setup();
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuMemAlloc_v2(&data, blocks * BYTES));
    OK(cuMemAlloc_v2(&other, BYTES));
    OK(cuMemsetD32_v2(data, pattern, blocks * BYTES / 4));
    OK(cuGraphCreate(&made, 0));
    OK(cuGraphAddEmptyNode(&node, made, NULL, 0));
    OK(cuGraphInstantiateWithFlags(&graph, made, 0));
    OK(cuEventRecord(begin, stream));
    OK(launch(spin, stream, 1000));
    OK(cuEventRecord(end, stream));
    OK(cuCtxSynchronize());
}
static void told(char *line)
{
    CUdeviceptr more = 0;
    IpcHandle handle;
    for (size_t i = 0; i < CALLS; i++)
        if (!strcmp(line, calls[i].name)) {
            CUresult code = made(i);
            printf("%s %d %s\n", line, code, state());
            return;
        }
    if (!strcmp(line, "all")) all();
    else if (!strcmp(line, "calls")) for (size_t i = 0; i < CALLS; i++) printf("%s%c", calls[i].name, i + 1 < CALLS ? ' ' : '\n');
    else if (!strcmp(line, "fill")) printf("fill %d %s\n", cuMemsetD32_v2(data, ++pattern, blocks * BYTES / 4), state());
    else if (!strncmp(line, "hold ", 5)) printf("hold %d\n", cuMemAlloc_v2(&more, strtoull(line + 5, NULL, 0) << 20));
    else if (!strncmp(line, "work ", 5)) at_work(atof(line + 5));
    else if (!strcmp(line, "capture")) printf("capture %d\n", cuStreamBeginCapture_v2(stream, CAPTURE_RELAXED));
    else if (!strcmp(line, "captured")) printf("captured %d %s\n", captured(), state());
    else if (!strcmp(line, "managed")) printf("managed %d\n", cuMemAllocManaged(&more, BYTES, 1));
    else if (!strcmp(line, "share")) printf("share %d\n", ipc_get(&handle, data));
    else if (!strcmp(line, "restore")) printf("restore %d\n", restore(getpid(), NULL));
    else if (!strcmp(line, "busy")) printf("busy %d\n", launch(spin, stream, 3600000000000ull));
    else printf("unknown %s\n", line);
}
int main(int argc, char **argv)
{
    char line[64];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1) blocks = strtoull(argv[1], NULL, 0) / 8;
    prepare();
    ipc_get = (CUresult(*)(IpcHandle *, CUdeviceptr))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuIpcGetMemHandle");
    restore = (CUresult(*)(int, void *))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCheckpointProcessRestore");
    if (failures) return 1;
    printf("ready\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        told(line);
    }
    return failures != 0;
}
