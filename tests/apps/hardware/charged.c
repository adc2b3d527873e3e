/* What a tenant is charged against what NVML says that it has: a context, all that the quota allows, managed memory.
 *   charged [LIMIT_BYTES]    with a limit: what was allocated and what is charged stay within it
 * docs/hardware.md, "listed with 0 bytes", "managed memory", "allocation unit". */
#include "nvml.h"

static double used(void)
{
    size_t free_bytes = 0, total = 0;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    return (double)(total - free_bytes);
}
static void report_total(void)
{
    size_t free_bytes = 0, total = 0;
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    report("total", (double)total, "bytes");
}
/* Charges that come without a call are seen within half a second. */
static void settle(void) { usleep(700000); }

int main(int argc, char **argv)
{
    unsigned long long limit = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    static CUdeviceptr held[4096];
    int entries, listed, count = 0;
    nvml_open();
    setup();
    report_total();
    settle();
    double context_bytes = used(), own = own_used(&entries, &listed);
    report("used_after_context", context_bytes, "bytes");
    if (own > 0) report("used_minus_nvml", context_bytes - own, "bytes");
    else not_measured("used_minus_nvml", own < 0 ? "not-listed" : "listed-with-0");
    report("own_entries", entries, "entries");
    report("listed_processes", listed, "entries");
    if (limit) {
        CUresult code = SUCCESS;
        while (count < 4096 && (code = cuMemAlloc_v2(&held[count], 64 * MIB)) == SUCCESS) count++;
        EXPECT(OUT_OF_MEMORY, code);
        double allocated = (double)count * 64 * MIB;
        report("allocated", allocated, "bytes");
        report("limit_minus_allocated_and_context", (double)limit - allocated - context_bytes, "bytes");
        CHECK(allocated + context_bytes <= (double)limit);
        settle();
        own = own_used(&entries, &listed);
        if (own > 0) {
            report("full_used_minus_nvml", used() - own, "bytes");
            report("full_nvml_minus_limit", own - (double)limit, "bytes");
        }
        while (count) OK(cuMemFree_v2(held[--count]));
        settle();
        report("used_when_freed_minus_context", used() - context_bytes, "bytes");
    }
    CUdeviceptr managed;
    double before = used();
    OK(cuMemAllocManaged(&managed, 300 * MIB, 1));
    settle();
    report("managed_300M_charged", used() - before, "bytes");
    OK(cuMemsetD8_v2(managed, 1, 300 * MIB));
    OK(cuCtxSynchronize());
    settle();
    report("managed_300M_on_gpu_charged", used() - before, "bytes");
    OK(cuMemFree_v2(managed));
    settle();
    report("managed_freed_charged", used() - before, "bytes");
    return failures != 0;
}
