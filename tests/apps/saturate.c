/* Keeps the GPU busy: saturate SECONDS KERNEL_NS [kernel|graph|ex|cooperative|ptsz|sync] [STREAMS]
 * Prints "started", then at the end "launched N". */
#include "driver.h"
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv)
{
    double seconds = atof(argv[1]);
    uint64_t ns = strtoull(argv[2], NULL, 0);
    const char *how = argc > 3 ? argv[3] : "kernel";
    int streams = argc > 4 ? atoi(argv[4]) : 1;
    CUstream stream[16] = {0};
    CUgraph graph;
    CUgraphExec exec = NULL;
    setup();
    for (int i = 0; i < streams && i < 16; i++) OK(cuStreamCreate(&stream[i], STREAM_NON_BLOCKING));
    if (!strcmp(how, "graph")) {
        OK(cuStreamBeginCapture_v2(stream[0], CAPTURE_THREAD_LOCAL));
        for (int i = 0; i < 10; i++) OK(launch(spin, stream[0], ns));
        OK(cuStreamEndCapture(stream[0], &graph));
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    printf("started\n");
    fflush(stdout);
    unsigned long long launched = 0;
    for (double end = now() + seconds; now() < end && !failures; launched++) {
        CUstream s = stream[launched % streams];
        void *params[] = {&ns};
        if (exec) OK(cuGraphLaunch(exec, s));
        else if (!strcmp(how, "ex")) {
            LaunchConfig config = {1, 1, 1, 1, 1, 1, 0, s, NULL, 0};
            OK(cuLaunchKernelEx(&config, spin, params, NULL));
        } else if (!strcmp(how, "cooperative")) OK(cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, s, params));
        else OK(launch(spin, s, ns));
        if (!strcmp(how, "sync")) OK(cuStreamSynchronize(s));
    }
    printf("launched %llu\n", launched);
    return failures ? 1 : 0;
}
