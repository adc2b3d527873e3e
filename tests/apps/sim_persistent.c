/* A kernel that runs until the host writes a word for it, while the program launches others: sim_persistent ROUNDS. */
#include "driver.h"
#include <unistd.h>
static const char FED_PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry vcuda_fed(.param .u64 word)\n{\n  ret;\n}\n";
int main(int argc, char **argv)
{
    CUstream a, b;
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
    for (int round = 0; round < atoi(argv[1]) && !failures; round++) {
        *word = 0;
        alarm(60); /* a hang is an end by SIGALRM */
        OK(launch(fed, a, address));
        for (int i = 0; i < 4; i++) OK(launch(spin, b, 100000));
        /* The host's part of the work needs what was just launched: the kernel is fed only then. */
        OK(cuStreamSynchronize(b));
        *word = 1;
        OK(cuStreamSynchronize(a));
    }
    return finish("sim_persistent");
}
