/* A kernel that runs until the host writes a word for it, while the program launches others:
 *   sim_persistent ROUNDS          feeds it once they are done, so many times; no launch may take half a second
 *   sim_persistent beside SECONDS  feeds it at the end; prints "beside N" kernels of 1 ms */
#include "driver.h"
#include <time.h>
#include <unistd.h>
static const char FED_PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry vcuda_fed(.param .u64 word)\n{\n  ret;\n}\n";
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int argc, char **argv)
{
    CUstream a, b;
    double worst = 0;
    CUmodule fed_module;
    CUfunction fed;
    void *host;
    CUdeviceptr address;
    setup();
    OK(cuModuleLoadData(&fed_module, FED_PTX));
    OK(cuModuleGetFunction(&fed, fed_module, "vcuda_fed"));
    OK(cuStreamCreate(&a, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&b, STREAM_NON_BLOCKING));
    OK(cuMemHostAlloc(&host, 64, 2));
    OK(cuMemHostGetDevicePointer_v2(&address, host, 0));
    volatile uint32_t *word = host;
    if (!strcmp(argv[1], "beside")) {
        unsigned long beside = 0;
        *word = 0;
        OK(launch(fed, a, address));
        for (double end = now() + atof(argv[2]); now() < end && !failures; beside++) OK(launch(spin, b, 1000000));
        *word = 1;
        OK(cuCtxSynchronize());
        printf("beside %lu\n", beside);
        return finish("sim_persistent");
    }
    for (int round = 0; round < atoi(argv[1]) && !failures; round++) {
        *word = 0;
        alarm(60); /* a hang is an end by SIGALRM */
        OK(launch(fed, a, address));
        for (int i = 0; i < 4; i++) {
            double before = now();
            OK(launch(spin, b, 100000));
            if (now() - before > worst) worst = now() - before;
        }
        /* The host's part of the work needs what was just launched: the kernel is fed only then. */
        OK(cuStreamSynchronize(b));
        *word = 1;
        OK(cuStreamSynchronize(a));
    }
    printf("longest launch %.3f s\n", worst);
    CHECK(worst < 0.5);
    return finish("sim_persistent");
}
