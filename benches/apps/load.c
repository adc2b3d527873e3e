/* Wants the GPU for ever, in one of the ways in which programs do: load WHAT [NS]
 *   kernel NS      kernels of that length, one after another
 *   sync NS        as kernel, and waits for each
 *   mix            8 us to 5 ms in ten sizes, the grid tells which
 *   tail           one kernel, 100 us mostly and up to 20 ms: a Pareto distribution, nothing tells which
 *   graph NS       a graph of ten kernels of that length
 *   streams NS     kernels of that length on four streams
 *   phases         50 us for a third of a second of work, then 20 ms for as long, and so on
 *   unlike NS N NS2 N2   N kernels of NS and N2 of NS2, all alike to the driver, then a wait, and so on
 *   capture NS     captures a graph of twenty kernels of that length, launches it once, again and again
 *   bursts NS MS   kernels of that length for MS milliseconds, then idle for as long
 *   threads NS N FILE   kernels of that length on a stream of each of N threads; FILE: how many of each were launched
 *   requests NS N US FILE   N kernels of NS and a wait for them, begun each US microseconds (half to one and a half); FILE: how many
 *                   requests there were, then how long each took (ns)
 * Prints "started". The same numbers each time. */
#include "../../tests/apps/driver.h"
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static uint64_t seed = 0x9e3779b97f4a7c15;
static double chance(void) /* above 0, up to 1 */
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (double)(seed >> 11) / 9007199254740992.0 + 1e-12;
}
static CUstream streams[4];
static void run(unsigned grid, CUstream stream, uint64_t ns)
{
    void *params[] = {&ns};
    OK(cuLaunchKernel(spin, grid, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}
static CUgraphExec capture(int count, uint64_t ns)
{
    CUgraph graph;
    CUgraphExec exec = NULL;
    OK(cuStreamBeginCapture_v2(streams[0], CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < count; i++) run(1024, streams[0], ns);
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    return exec;
}
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static uint64_t *words(const char *path, size_t count)
{
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, (off_t)(count * 8))) return NULL;
    uint64_t *shared = mmap(NULL, count * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return shared == MAP_FAILED ? NULL : shared;
}
static int requests(uint64_t ns, int kernels, double period_us, const char *path)
{
    enum { MOST = 1 << 16 };
    uint64_t *took = words(path, 1 + MOST);
    if (!took) return 1;
    for (double due = now(); !failures && took[0] < MOST;) {
        due += period_us * (0.5 + chance()) / 1e3;
        if (due > now()) usleep((useconds_t)((due - now()) * 1e3));
        double began = now();
        for (int i = 0; i < kernels; i++) run(1024, streams[0], ns);
        OK(cuStreamSynchronize(streams[0]));
        took[1 + took[0]] = (uint64_t)((now() - began) * 1e6);
        ++*(volatile uint64_t *)took;
    }
    return 1;
}
static uint64_t thread_ns;
static void *saturate(void *launched)
{
    CUstream stream;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    for (; !failures; ++*(volatile uint64_t *)launched) run(1024, stream, thread_ns);
    return NULL;
}
static int threads(int count, const char *path)
{
    pthread_t thread[64];
    uint64_t *launched = words(path, (size_t)count);
    if (count > 64 || !launched) return 1;
    for (int i = 0; i < count; i++) OK(pthread_create(&thread[i], NULL, saturate, &launched[i]));
    for (int i = 0; i < count; i++) pthread_join(thread[i], NULL);
    return 1;
}
int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "kernel";
    uint64_t ns = argc > 2 ? strtoull(argv[2], NULL, 0) : 100000, worked = 0;
    CUgraphExec graph = NULL;
    setup();
    for (int i = 0; i < 4; i++) OK(cuStreamCreate(&streams[i], STREAM_NON_BLOCKING));
    if (!strcmp(what, "graph")) graph = capture(10, ns);
    printf("started\n");
    fflush(stdout);
    thread_ns = ns;
    if (!strcmp(what, "requests")) return requests(ns, atoi(argv[3]), atof(argv[4]), argv[5]);
    if (!strcmp(what, "threads")) return threads(atoi(argv[3]), argv[4]);
    double began = now();
    for (uint64_t n = 0; !failures; n++) {
        if (!strcmp(what, "kernel")) run(1024, streams[0], ns);
        else if (!strcmp(what, "sync")) {
            run(1024, streams[0], ns);
            OK(cuStreamSynchronize(streams[0]));
        } else if (!strcmp(what, "mix")) {
            unsigned size = (unsigned)(chance() * 9.999);
            run(1u << size, streams[0], (uint64_t)(8000 * pow(625, size / 9.0)));
        } else if (!strcmp(what, "tail")) {
            double tail = 100000 / pow(chance(), 1 / 1.5);
            run(1024, streams[0], (uint64_t)(tail < 20e6 ? tail : 20e6));
        } else if (!strcmp(what, "graph")) OK(cuGraphLaunch(graph, streams[0]));
        else if (!strcmp(what, "streams")) run(1024, streams[n % 4], ns);
        else if (!strcmp(what, "phases")) {
            ns = worked / 333000000 % 2 ? 20000000 : 50000;
            run(1024, streams[0], ns);
            worked += ns;
        } else if (!strcmp(what, "unlike")) {
            for (int i = 0; i < atoi(argv[3]); i++) run(1024, streams[0], ns);
            for (int i = 0; i < atoi(argv[5]); i++) run(1024, streams[0], strtoull(argv[4], NULL, 10));
            OK(cuStreamSynchronize(streams[0]));
        } else if (!strcmp(what, "capture")) {
            graph = capture(20, ns);
            OK(cuGraphLaunch(graph, streams[0]));
            OK(cuStreamSynchronize(streams[0]));
            OK(cuGraphExecDestroy(graph));
        } else if (!strcmp(what, "bursts")) {
            double length = atof(argv[3]);
            run(1024, streams[0], ns);
            if (now() - began > length) {
                OK(cuStreamSynchronize(streams[0]));
                usleep((useconds_t)(length * 1000));
                began = now();
            }
        } else return 64;
    }
    return 1;
}
