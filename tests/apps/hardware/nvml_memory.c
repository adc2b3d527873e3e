/* What NVML says of this process and of the GPU as memory of each kind is taken and given back: the size of a context, the
 * unit of an allocation, whether managed memory and pools are counted, and by how many entries a process is listed.
 * docs/hardware.md, "listed with 0 bytes", "managed memory", "allocation unit", "MPS clients". */
#include "nvml.h"

/* The GPU's use and this process's figure, as differences to the last look at "before". */
static unsigned long long gpu_before;
static double own_before;
static void look(const char *what)
{
    char name[96];
    int entries, listed;
    double own = own_used(&entries, &listed);
    snprintf(name, sizeof name, "%s_gpu", what);
    report(name, (double)gpu_used() - (double)gpu_before, "bytes");
    snprintf(name, sizeof name, "%s_own", what);
    if (own < 0) not_measured(name, "not-listed");
    else if (own == (double)~0ull) not_measured(name, "not-available");
    else report(name, own - own_before, "bytes");
}
static void base(void)
{
    int entries, listed;
    gpu_before = gpu_used();
    own_before = own_used(&entries, &listed);
    if (own_before < 0) own_before = 0;
}

static void allocations(void)
{
    static const size_t sizes[] = {1, 64 << 10, (1 << 20) + 1, (2 << 20) + 1};
    static const char *const names[] = {"alloc_1", "alloc_64K", "alloc_1M_1", "alloc_2M_1"};
    for (int kind = 0; kind < 4; kind++) {
        CUdeviceptr p[64];
        base();
        for (int i = 0; i < 64; i++) OK(cuMemAlloc_v2(&p[i], sizes[kind]));
        char name[96];
        snprintf(name, sizeof name, "%s_times_64", names[kind]);
        look(name);
        for (int i = 0; i < 64; i++) OK(cuMemFree_v2(p[i]));
        snprintf(name, sizeof name, "%s_freed", names[kind]);
        look(name);
    }
}

static void other_kinds(void)
{
    CUdeviceptr p;
    CUstream stream;
    size_t free_bytes, total;
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    base();
    OK(cuMemAllocAsync(&p, 100 * MIB, stream));
    OK(cuStreamSynchronize(stream));
    look("pool_100M");
    OK(cuMemFreeAsync(p, stream));
    OK(cuStreamSynchronize(stream));
    look("pool_freed");
    base();
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    if (free_bytes < 1024 * MIB) {
        not_measured("managed", "too-little-free");
        return;
    }
    OK(cuMemAllocManaged(&p, 256 * MIB, 1));
    look("managed_256M_untouched");
    OK(cuMemsetD8_v2(p, 1, 256 * MIB));
    OK(cuCtxSynchronize());
    look("managed_256M_on_gpu");
    OK(cuMemFree_v2(p));
    look("managed_freed");
}

int main(void)
{
    int entries, listed;
    nvml_open();
    base();
    unsigned long long before = gpu_before;
    setup();
    look("context_and_module");
    own_used(&entries, &listed);
    report("own_entries", entries, "entries");
    report("listed_processes", listed, "entries");
    report("gpu_used_before", (double)before, "bytes");
    allocations();
    other_kinds();
    base();
    CUcontext second;
    CUresult code = cuCtxCreate_v2(&second, 0, device);
    if (code == SUCCESS) {
        look("second_context");
        OK(cuCtxDestroy_v2(second));
        look("second_context_destroyed");
        OK(cuCtxSetCurrent(context));
    } else {
        report("second_context_status", code, "CUresult");
    }
    static NvmlProcess clients[512];
    unsigned count = 512;
    report("mps_list_status", nvmlDeviceGetMPSComputeRunningProcesses_v3(nvml_device, &count, clients), "nvmlReturn");
    report("mps_clients", count == 512 ? 0 : count, "entries");
    return failures != 0;
}
