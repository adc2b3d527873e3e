/* Kernels of a fixed amount of work, so that a share is what was done and not what a clock on the GPU says.
 *   shares calibrate KERNEL_US [own|wide]          prints "iterations" for such a kernel, and "alone_per_second"
 *   shares SECONDS ITERATIONS [own|other|kernel|green|graph|wide|uneven]   prints "kernels_per_second"
 *   shares requests ITERATIONS SECONDS KERNELS US  so many of them that fill the GPU and a wait, begun each US (half to one and a half):
 *       prints how long that takes
 * own: the stream's context is current; other: another one is; kernel: as other, with a CUkernel of a library; green: the
 * stream is a green context's and the primary context is current; graph: graphs of 8 kernels; wide: each kernel fills the GPU;
 * uneven: of the same function and grid, a twentieth and 20 times as long by turns, each waited for.
 * docs/hardware.md, "stream's context", "green contexts", "turns between contexts". */
#include "measure.h"

static CUstream stream;
static CUfunction function;
static CUgraphExec graph_exec;
static unsigned blocks = 1, threads = 1;
static int uneven;

static CUresult launch_kernel(uint64_t iterations)
{
    void *params[] = {&iterations};
    return cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL);
}

/* Kernels in a second over that time; waits for the GPU after each 8th. */
static double rate(double seconds, uint64_t iterations)
{
    double begin = now_us(), elapsed;
    long count = 0;
    do {
        int kernels = uneven ? 1 : 8;
        if (graph_exec) OK(cuGraphLaunch(graph_exec, stream));
        else if (uneven) OK(launch_kernel(count % 2 ? 20 * iterations : iterations / 20));
        else
            for (int i = 0; i < kernels; i++) OK(launch_kernel(iterations));
        OK(cuStreamSynchronize(stream));
        count += kernels;
        elapsed = now_us() - begin;
    } while (elapsed < seconds * 1e6 && !failures);
    return (double)count * 1e6 / elapsed;
}
static void calibrate(double kernel_us)
{
    uint64_t iterations = 1000;
    for (int round = 0; round < 6; round++) {
        double per_second = rate(0.2, iterations);
        iterations = (uint64_t)((double)iterations * kernel_us * per_second / 1e6) + 1;
    }
    report("iterations", (double)iterations, "iterations");
    report("alone_per_second", rate(1, iterations), "kernels/s");
}
/* The stream of a context of its own, while another one is current. */
static void in_other_context(int by_library)
{
    CUcontext a, b;
    CUmodule its_module;
    CUlibrary library;
    CUkernel kernel;
    OK(cuCtxCreate_v2(&a, 0, device));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    if (by_library) {
        OK(cuLibraryLoadData(&library, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0));
        OK(cuLibraryGetKernel(&kernel, library, "vcuda_work"));
        function = (CUfunction)kernel;
    } else {
        OK(cuModuleLoadData(&its_module, SPIN_PTX));
        OK(cuModuleGetFunction(&function, its_module, "vcuda_work"));
    }
    OK(cuCtxCreate_v2(&b, 0, device));
}
static void in_green_context(void)
{
    unsigned long long resource[32] = {0}; /* CUdevResource, 144 bytes */
    void *description, *green;
    OPTIONAL(cuDeviceGetDevResource, (CUdevice, void *, int));
    OPTIONAL(cuDevResourceGenerateDesc, (void **, void *, unsigned));
    OPTIONAL(cuGreenCtxCreate, (void **, void *, CUdevice, unsigned));
    OPTIONAL(cuGreenCtxStreamCreate, (CUstream *, void *, unsigned, int));
    if (!cuGreenCtxStreamCreate || !cuDeviceGetDevResource || !cuDevResourceGenerateDesc || !cuGreenCtxCreate)
        skip("this driver has no green contexts");
    if (cuDeviceGetDevResource(device, resource, 1) || cuDevResourceGenerateDesc(&description, resource, 1) ||
        cuGreenCtxCreate(&green, description, device, 1))
        skip("this GPU gives no green context");
    OK(cuGreenCtxStreamCreate(&stream, green, STREAM_NON_BLOCKING, 0));
}
static void as_graph(uint64_t iterations)
{
    CUgraph graph;
    OK(cuStreamBeginCapture_v2(stream, CAPTURE_THREAD_LOCAL));
    for (int i = 0; i < 8; i++) OK(launch(work, stream, iterations));
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&graph_exec, graph, 0));
}
static void requests(uint64_t iterations, double seconds, int kernels, double period_us)
{
    static double took[100000];
    int count = 0;
    double begin = now_us(), due = begin;
    srand48(1);
    while (due < begin + seconds * 1e6 && count < 100000 && !failures) {
        due += period_us * (0.5 + drand48());
        double now = now_us();
        if (due > now) usleep((useconds_t)(due - now));
        now = now_us();
        for (int i = 0; i < kernels; i++) OK(launch_kernel(iterations));
        OK(cuStreamSynchronize(stream));
        took[count++] = now_us() - now;
    }
    report_spread("request", took, count, "us");
    report("request_p999", took[count - 1 - count / 1000], "us");
    report("requests", count, "requests");
}
int main(int argc, char **argv)
{
    const int serves = argc == 6 && !strcmp(argv[1], "requests");
    const char *how = serves ? "wide" : argc > 3 ? argv[3] : "own";
    if (argc < 3) return 64;
    uint64_t iterations = strtoull(argv[2], NULL, 0);
    setup();
    function = work;
    if (!strcmp(how, "other")) in_other_context(0);
    else if (!strcmp(how, "kernel")) in_other_context(1);
    else if (!strcmp(how, "green")) in_green_context();
    else OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    if (!strcmp(how, "graph")) as_graph(iterations);
    uneven = !strcmp(how, "uneven");
    if (!strcmp(how, "wide")) {
        int multiprocessors = 1;
        OK(cuDeviceGetAttribute(&multiprocessors, 16, device));
        blocks = 2 * (unsigned)multiprocessors;
        threads = 1024;
    }
    if (!strcmp(argv[1], "calibrate")) {
        calibrate(atof(argv[2]));
    } else if (serves) {
        rate(0.5, iterations);
        requests(iterations, atof(argv[3]), atoi(argv[4]), atof(argv[5]));
    } else {
        rate(0.5, iterations); /* the bucket's first filling, and code that is loaded */
        report("kernels_per_second", rate(atof(argv[1]), iterations), "kernels/s");
    }
    return failures != 0;
}
