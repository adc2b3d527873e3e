/* When a context has the GPU: one thread on the GPU spins and notes each pause of the GPU's clock of more than 3 us. Beside
 * another such process the pauses are the other's slices and two switches; `events` says whether a pair of events counts them.
 *   pauses MILLISECONDS [EPOCH_SECOND [BLOCKS THREADS]]    begins at that second, so that two begin together; the other threads
 *                                                          only occupy the GPU
 * docs/hardware.md, "turns between contexts". Needs a GPU that computes. */
#include "measure.h"

#define MOST 65536
/* words: pauses seen, rounds, least step of the clock, unused, then pairs (last look before, first look after) */
static const char PAUSES_PTX[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry pauses(.param .u64 p_ns, .param .u64 p_words, .param .u64 p_most)\n{\n"
    "  .reg .u64 %ns, %words, %most, %begin, %last, %now, %d, %k, %n, %least, %at;\n  .reg .u32 %block, %thread;\n  .reg .pred %p;\n"
    "  ld.param.u64 %ns, [p_ns];\n  ld.param.u64 %words, [p_words];\n  ld.param.u64 %most, [p_most];\n"
    "  mov.u64 %begin, %globaltimer;\n  mov.u64 %last, %begin;\n  mov.u64 %k, 0;\n  mov.u64 %n, 0;\n  mov.u64 %least, 1000000000;\n"
    "  mov.u32 %block, %ctaid.x;\n  mov.u32 %thread, %tid.x;\n  or.b32 %block, %block, %thread;\n"
    "  setp.ne.u32 %p, %block, 0;\n  @%p bra spin;\n"
    "again:\n  mov.u64 %now, %globaltimer;\n  add.u64 %n, %n, 1;\n  sub.u64 %d, %now, %last;\n"
    "  setp.eq.u64 %p, %d, 0;\n  @%p bra tail;\n  min.u64 %least, %least, %d;\n"
    "  setp.le.u64 %p, %d, 3000;\n  @%p bra seen;\n  setp.ge.u64 %p, %k, %most;\n  @%p bra count;\n"
    "  shl.b64 %at, %k, 4;\n  add.u64 %at, %at, %words;\n  st.global.u64 [%at+32], %last;\n  st.global.u64 [%at+40], %now;\n"
    "count:\n  add.u64 %k, %k, 1;\n"
    "seen:\n  mov.u64 %last, %now;\n"
    "tail:\n  sub.u64 %d, %now, %begin;\n  setp.lt.u64 %p, %d, %ns;\n  @%p bra again;\n"
    "  bra told;\n"
    "spin:\n  mov.u64 %now, %globaltimer;\n  sub.u64 %d, %now, %begin;\n  setp.lt.u64 %p, %d, %ns;\n  @%p bra spin;\n  ret;\n"
    "told:\n  st.global.u64 [%words], %k;\n  st.global.u64 [%words+8], %n;\n  st.global.u64 [%words+16], %least;\n  ret;\n}\n";

static uint64_t words[4 + 2 * MOST];
static CUfunction pauses;
static unsigned blocks = 1, threads = 1;
static CUdeviceptr on_gpu;
static CUstream stream;

static void run_on_gpu(uint64_t ns)
{
    uint64_t most = MOST;
    void *params[] = {&ns, &on_gpu, &most};
    OK(cuLaunchKernel(pauses, blocks, 1, 1, threads, 1, 1, 0, stream, params, NULL));
}
static void report_lengths(const char *name, double *lengths, int count)
{
    static const struct { const char *name; int permille; } at[] = {{"p10", 100}, {"median", 500}, {"p90", 900}, {"max", 999}};
    char full[48];
    if (count <= 0) return;
    qsort(lengths, (size_t)count, sizeof *lengths, by_size);
    for (int i = 0; i < 4; i++) {
        snprintf(full, sizeof full, "%s_%s", name, at[i].name);
        report(full, lengths[count * at[i].permille / 1000], "us");
    }
}
static void report_pauses(double ms)
{
    static double pause[MOST], between[MOST];
    int count = words[0] < MOST ? (int)words[0] : MOST;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        uint64_t *pair = words + 4 + 2 * i;
        pause[i] = (double)(pair[1] - pair[0]) / 1e3;
        sum += pause[i];
        if (i) between[i - 1] = (double)(pair[0] - pair[-1]) / 1e3;
    }
    report("clock_step", (double)words[2], "ns");
    report("rounds", (double)words[1], "rounds");
    report("pauses", (double)words[0], "pauses");
    report("paused", 100 * sum / (ms * 1e3), "%");
    report_lengths("pause", pause, count);
    report_lengths("run_between", between, count - 1);
}
int main(int argc, char **argv)
{
    double ms = argc > 1 ? atof(argv[1]) : 300;
    long start = argc > 2 ? atol(argv[2]) : 0;
    if (argc > 4) blocks = (unsigned)atoi(argv[3]), threads = (unsigned)atoi(argv[4]);
    CUmodule loaded;
    CUevent begin, end;
    float elapsed;
    setup();
    OK(cuModuleLoadData(&loaded, PAUSES_PTX));
    OK(cuModuleGetFunction(&pauses, loaded, "pauses"));
    OK(cuMemAlloc_v2(&on_gpu, sizeof words));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    OK(cuEventCreate(&begin, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuMemsetD8_v2(on_gpu, 0, sizeof words));
    run_on_gpu(1000);
    OK(cuStreamSynchronize(stream));
    OK(cuMemcpyDtoH_v2(words, on_gpu, sizeof words));
    if (failures) return 1;
    if (!words[1]) skip("not simulated: kernels compute nothing");
    while (start && time(NULL) < start) usleep(100);
    OK(cuEventRecord(begin, stream));
    run_on_gpu((uint64_t)(ms * 1e6));
    OK(cuEventRecord(end, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime(&elapsed, begin, end));
    OK(cuMemcpyDtoH_v2(words, on_gpu, sizeof words));
    report("events", elapsed, "ms");
    report_pauses(ms);
    return failures != 0;
}
