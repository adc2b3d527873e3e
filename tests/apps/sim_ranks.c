/* Ranks that meet in a kernel that spins until all of them do, as collectives do, after 200 us of other kernels on each:
 * sim_ranks KERNEL ROUNDS RANKS RANK|all [WORK_NS [END_S [PAUSE_S]]]. Rank R is on GPU R, counted round; `all`: this process, one thread, has all of them. A
 * round's collectives are launched one after the other, as within ncclGroupStart and ncclGroupEnd. WORK_NS 0: nothing but
 * meetings. END_S: sleep at the end; PAUSE_S: halfway, between two rounds. Simulator only. */
#include "driver.h"
#include <unistd.h>
static const char MEET_PTX[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                               ".visible .entry ncclDevKernel_vcuda_meet(.param .u64 who)\n{\n  ret;\n}\n"
                               ".visible .entry plain_vcuda_meet(.param .u64 who)\n{\n  ret;\n}\n"
                               ".visible .entry vcuda_spin_ns(.param .u64 ns)\n{\n  ret;\n}\n";
#define MEETING 7ull
#define MEETING_NS 100000ull
struct rank {
    CUcontext context;
    CUstream stream;
    CUfunction meet, work;
} rank[8];
static void begin(struct rank *r, int gpu, const char *kernel)
{
    CUdevice device;
    CUmodule module;
    int gpus = 1;
    OK(cuDeviceGetCount(&gpus));
    OK(cuDeviceGet(&device, gpu % gpus));
    OK(cuDevicePrimaryCtxRetain(&r->context, device));
    OK(cuCtxSetCurrent(r->context));
    OK(cuModuleLoadData(&module, MEET_PTX));
    OK(cuModuleGetFunction(&r->meet, module, kernel));
    OK(cuModuleGetFunction(&r->work, module, "vcuda_spin_ns"));
    OK(cuStreamCreate(&r->stream, STREAM_NON_BLOCKING));
}
int main(int argc, char **argv)
{
    long rounds = atol(argv[2]);
    uint64_t ranks = strtoull(argv[3], NULL, 0), who = MEETING_NS | MEETING << 32 | ranks << 48;
    uint64_t work_ns = argc > 5 ? strtoull(argv[5], NULL, 0) : 200000;
    int all = !strcmp(argv[4], "all"), own = all ? (int)ranks : 1;
    driver_open();
    OK(cuInit(0));
    for (int i = 0; i < own; i++) begin(&rank[i], all ? i : atoi(argv[4]), argv[1]);
    printf("started\n");
    fflush(stdout);
    for (long round = 1; round <= rounds && !failures; round++) {
        if (argc > 7 && round == rounds / 2) sleep(atoi(argv[7]));
        for (int i = 0; i < own && work_ns; i++) {
            OK(cuCtxSetCurrent(rank[i].context));
            OK(launch(rank[i].work, rank[i].stream, work_ns));
        }
        for (int i = 0; i < own; i++) {
            OK(cuCtxSetCurrent(rank[i].context));
            OK(launch(rank[i].meet, rank[i].stream, who));
        }
        for (int i = 0; i < own && round % 8 == 0; i++) OK(cuStreamSynchronize(rank[i].stream));
    }
    for (int i = 0; i < own; i++) OK(cuStreamSynchronize(rank[i].stream));
    printf("met %ld\n", rounds);
    fflush(stdout);
    sleep(argc > 6 ? atoi(argv[6]) : 0);
    return finish("sim_ranks");
}
