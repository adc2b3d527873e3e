/* Everything that tells how much there is and who has it, asked at one time: answers BYTES. Takes BYTES and a pool that
 * keeps some, prints "ready PID"; then for each line of stdin: "tell" prints "told JSON", "work MS" keeps the GPU busy and
 * prints "worked". At the end of stdin "passed answers". What one process can judge is checked here: lists of all
 * versions agree, and tell the room that they need. CUDA Driver API; NVML API reference, "Device Queries", "Accounting
 * Statistics", "Multi Instance GPU Management". */
#include "driver.h"
#include <unistd.h>
typedef void *Device;
typedef unsigned long long U64;
typedef struct { U64 total, free, used; } Memory;
typedef struct { unsigned version; U64 total, reserved, free, used; } Memory2;
typedef struct { unsigned pid; U64 used; } Info1;
typedef struct { unsigned pid; U64 used; unsigned gpu_instance, compute_instance; } Info2;
typedef struct { unsigned pid; U64 used; unsigned gpu_instance, compute_instance; U64 confidential; } Detail;
typedef struct { unsigned version, mode, count; Detail *array; } Details;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned pid; U64 time; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { U64 time; unsigned pid, sm, memory, encoder, decoder, jpeg, flow; } Sample2;
typedef struct { unsigned version, count; U64 seen; Sample2 *array; } Samples2;
typedef struct { U64 time; union { double d; unsigned u; U64 l; } value; } Value;
typedef struct { unsigned gpu, memory; U64 peak, time, start; unsigned running, reserved[5]; } Stats;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; } Pci;
enum { N_OK = 0, N_INVALID = 2, N_UNSUPPORTED = 3, N_NOT_FOUND = 6, N_SIZE = 7, ROOM = 64 };
#define VERSION(type, n) ((unsigned)sizeof(type) | (unsigned)(n) << 24)

#define NVML(X)                                                                                                        \
    X(Init_v2, (void))                                                                                                 \
    X(DeviceGetCount_v2, (unsigned *))                                                                                 \
    X(DeviceGetHandleByIndex_v2, (unsigned, Device *))                                                                 \
    X(DeviceGetHandleByUUID, (const char *, Device *))                                                                 \
    X(DeviceGetHandleBySerial, (const char *, Device *))                                                               \
    X(DeviceGetHandleByPciBusId_v2, (const char *, Device *))                                                          \
    X(DeviceGetIndex, (Device, unsigned *))                                                                            \
    X(DeviceGetUUID, (Device, char *, unsigned))                                                                       \
    X(DeviceGetSerial, (Device, char *, unsigned))                                                                     \
    X(DeviceGetPciInfo_v3, (Device, Pci *))                                                                            \
    X(DeviceGetMemoryInfo, (Device, Memory *))                                                                         \
    X(DeviceGetMemoryInfo_v2, (Device, Memory2 *))                                                                     \
    X(DeviceGetBAR1MemoryInfo, (Device, Memory *))                                                                     \
    X(DeviceGetComputeRunningProcesses, (Device, unsigned *, void *))                                                  \
    X(DeviceGetComputeRunningProcesses_v2, (Device, unsigned *, void *))                                               \
    X(DeviceGetComputeRunningProcesses_v3, (Device, unsigned *, void *))                                               \
    X(DeviceGetGraphicsRunningProcesses, (Device, unsigned *, void *))                                                 \
    X(DeviceGetGraphicsRunningProcesses_v2, (Device, unsigned *, void *))                                              \
    X(DeviceGetGraphicsRunningProcesses_v3, (Device, unsigned *, void *))                                              \
    X(DeviceGetMPSComputeRunningProcesses, (Device, unsigned *, void *))                                               \
    X(DeviceGetMPSComputeRunningProcesses_v2, (Device, unsigned *, void *))                                            \
    X(DeviceGetMPSComputeRunningProcesses_v3, (Device, unsigned *, void *))                                            \
    X(DeviceGetRunningProcessDetailList, (Device, Details *))                                                          \
    X(DeviceGetUtilizationRates, (Device, Rates *))                                                                    \
    X(DeviceGetProcessUtilization, (Device, Sample *, unsigned *, U64))                                                \
    X(DeviceGetProcessesUtilizationInfo, (Device, Samples2 *))                                                         \
    X(DeviceGetSamples, (Device, int, U64, int *, unsigned *, Value *))                                                \
    X(DeviceGetAccountingMode, (Device, int *))                                                                        \
    X(DeviceGetAccountingBufferSize, (Device, unsigned *))                                                             \
    X(DeviceGetAccountingPids, (Device, unsigned *, unsigned *))                                                       \
    X(DeviceGetAccountingStats, (Device, unsigned, Stats *))                                                           \
    X(DeviceGetMigMode, (Device, unsigned *, unsigned *))                                                              \
    X(DeviceGetMaxMigDeviceCount, (Device, unsigned *))                                                                \
    X(DeviceGetMigDeviceHandleByIndex, (Device, unsigned, Device *))                                                   \
    X(DeviceIsMigDeviceHandle, (Device, unsigned *))
#define X(name, args) static int(*n##name) args;
NVML(X)
#undef X
static void nvml_open(void)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!lib) { printf("skip: %s\n", dlerror()); exit(77); }
#define X(name, args)                                                                                                  \
    if (!(n##name = (int(*) args)dlsym(lib, "nvml" #name))) { printf("FAIL no nvml" #name "\n"); exit(1); }
    NVML(X)
#undef X
    CHECK(nInit_v2() == N_OK);
}

static char text[1 << 16];
static size_t length;
#define SAY(...) (length += (size_t)snprintf(text + length, sizeof text - length, __VA_ARGS__))

typedef struct { unsigned pid; U64 used; } Entry;
typedef int (*Lister)(Device, unsigned *, void *);
/* One list, by every amount of room: too little is refused with the number that it takes and nothing else written. */
static unsigned listed(Device on, Lister list, size_t size, Entry *entries)
{
    static unsigned char room[ROOM * sizeof(Detail)];
    unsigned count = 0, needed;
    int code = list(on, &count, NULL);
    needed = count;
    CHECK(code == (needed ? N_SIZE : N_OK) && needed < ROOM);
    if (needed > 1) {
        memset(room, 0x5a, sizeof room);
        count = needed - 1;
        CHECK(list(on, &count, room) == N_SIZE && count == needed);
        CHECK(room[0] == 0x5a && room[size] == 0x5a);
    }
    memset(room, 0x5a, sizeof room);
    count = needed;
    CHECK(list(on, &count, room) == N_OK && count == needed);
    memset(room, 0x5a, sizeof room);
    count = needed + 3;
    CHECK(list(on, &count, room) == N_OK && count == needed);
    CHECK(room[needed * size] == 0x5a);
    for (unsigned i = 0; i < needed; i++) {
        memcpy(&entries[i].pid, room + i * size + offsetof(Info2, pid), sizeof entries[i].pid);
        memcpy(&entries[i].used, room + i * size + offsetof(Info2, used), sizeof entries[i].used);
    }
    CHECK(list(on, NULL, room) == N_INVALID);
    return needed;
}
static unsigned mode;
static int detail(Device on, unsigned *count, void *array)
{
    Details list = {VERSION(Details, 1), mode, count ? *count : 0, array};
    if (!count) return N_INVALID;
    int code = nDeviceGetRunningProcessDetailList(on, &list);
    CHECK(list.array == array && list.mode == mode);
    *count = list.count;
    return code;
}
static void lists(Device on, const char *name, Lister v1, Lister v2, Lister v3, unsigned detail_mode)
{
    Entry entries[4][ROOM];
    unsigned counts[4] = {listed(on, v1, sizeof(Info1), entries[0]), listed(on, v2, sizeof(Info2), entries[1]),
                          listed(on, v3, sizeof(Info2), entries[2]), 0};
    mode = detail_mode;
    counts[3] = listed(on, detail, sizeof(Detail), entries[3]);
    for (int i = 1; i < 4; i++) {
        CHECK(counts[i] == counts[0]);
        for (unsigned n = 0; n < counts[0]; n++)
            CHECK(entries[i][n].pid == entries[0][n].pid && entries[i][n].used == entries[0][n].used);
    }
    SAY("\"%s\":{", name);
    for (unsigned i = 0; i < counts[0]; i++) SAY("%s\"%u\":%llu", i ? "," : "", entries[0][i].pid, entries[0][i].used);
    SAY("},");
}
/* Which processes are said to have used the GPU, and how much the container. */
static void utilization(Device on)
{
    Rates rates = {777, 777};
    CHECK(nDeviceGetUtilizationRates(on, &rates) == N_OK && rates.gpu <= 100 && rates.memory <= 100);
    SAY("\"rates\":%u,\"samples\":{", rates.gpu);
    Sample samples[ROOM];
    unsigned count = ROOM, room = 0;
    int code = nDeviceGetProcessUtilization(on, samples, &count, 0);
    CHECK(code == N_OK || code == N_NOT_FOUND);
    if (code) count = 0;
    for (unsigned i = 0; i < count; i++) SAY("%s\"%u\":%u", i ? "," : "", samples[i].pid, samples[i].sm);
    SAY("},\"samples2\":{");
    Sample2 more[ROOM];
    Samples2 list = {VERSION(Samples2, 1), ROOM, 0, more};
    code = nDeviceGetProcessesUtilizationInfo(on, &list);
    CHECK(code == N_OK || code == N_NOT_FOUND);
    if (code) list.count = 0;
    for (unsigned i = 0; i < list.count; i++) SAY("%s\"%u\":%u", i ? "," : "", more[i].pid, more[i].sm);
    SAY("},");
    /* Without an array: how much room to bring. */
    code = nDeviceGetProcessUtilization(on, NULL, &room, 0);
    CHECK(code == N_NOT_FOUND || (code == N_SIZE && room >= count));
    Value values[512];
    int type = -1;
    unsigned most = 0;
    count = 512;
    code = nDeviceGetSamples(on, 1 /* GPU utilisation */, 0, &type, &count, values);
    CHECK(code == N_OK || code == N_NOT_FOUND);
    for (unsigned i = 0; !code && i < count; i++)
        if (values[i].value.u > most) most = values[i].value.u;
    SAY("\"most\":%u,", most);
}
static void accounting(Device on)
{
    int is_on = -1;
    unsigned size = 0, count = 0;
    CHECK(nDeviceGetAccountingMode(on, &is_on) == N_OK);
    if (!is_on) {
        CHECK(nDeviceGetAccountingPids(on, &count, NULL) == N_UNSUPPORTED);
        SAY("\"accounting\":null,");
        return;
    }
    CHECK(nDeviceGetAccountingBufferSize(on, &size) == N_OK && size > 0);
    unsigned pids[ROOM];
    int code = nDeviceGetAccountingPids(on, &count, NULL);
    CHECK(code == (count ? N_SIZE : N_OK) && count < ROOM);
    unsigned needed = count;
    if (needed) {
        count = needed - 1;
        pids[0] = 0x5a5a;
        CHECK(nDeviceGetAccountingPids(on, &count, pids) == N_SIZE && count == needed && pids[0] == 0x5a5a);
    }
    count = ROOM;
    CHECK(nDeviceGetAccountingPids(on, &count, pids) == N_OK && count == needed);
    SAY("\"accounting\":{");
    for (unsigned i = 0; i < count; i++) {
        Stats stats = {0};
        CHECK(nDeviceGetAccountingStats(on, pids[i], &stats) == N_OK);
        SAY("%s\"%u\":%llu", i ? "," : "", pids[i], stats.peak);
    }
    SAY("},");
}
static void one_gpu(unsigned index, Device on)
{
    char uuid[96] = "", serial[64] = "";
    Pci pci = {{0}};
    Device same[3] = {NULL, NULL, NULL};
    unsigned told = ~0u, is_mig = 7, most = 7, current = 7, pending = 7;
    CHECK(nDeviceGetIndex(on, &told) == N_OK && told == index);
    CHECK(nDeviceGetUUID(on, uuid, sizeof uuid) == N_OK && nDeviceGetSerial(on, serial, sizeof serial) == N_OK);
    CHECK(nDeviceGetPciInfo_v3(on, &pci) == N_OK);
    CHECK(nDeviceGetHandleByUUID(uuid, &same[0]) == N_OK && nDeviceGetHandleBySerial(serial, &same[1]) == N_OK);
    CHECK(nDeviceGetHandleByPciBusId_v2(pci.address, &same[2]) == N_OK);
    Memory memory, window;
    Memory2 memory2 = {.version = VERSION(Memory2, 2)};
    CHECK(nDeviceGetMemoryInfo(on, &memory) == N_OK && nDeviceGetMemoryInfo_v2(on, &memory2) == N_OK);
    CHECK(memory.total == memory2.total && memory.free == memory2.free && memory.used == memory2.used);
    CHECK(memory2.total == memory2.reserved + memory2.free + memory2.used);
    CHECK(nDeviceGetBAR1MemoryInfo(on, &window) == N_OK && window.total == window.free + window.used);
    for (int i = 0; i < 3; i++) { /* by whatever name, one GPU with one answer */
        Memory again = {0};
        CHECK(same[i] == on && nDeviceGetMemoryInfo(same[i], &again) == N_OK && !memcmp(&again, &memory, sizeof again));
    }
    /* Quotas are of whole GPUs: no instances. */
    int code = nDeviceGetMigMode(on, &current, &pending);
    CHECK(code == N_UNSUPPORTED || (code == N_OK && current == 0));
    CHECK(nDeviceGetMaxMigDeviceCount(on, &most) == N_OK && most == 0);
    CHECK(nDeviceGetMigDeviceHandleByIndex(on, 0, &same[0]) != N_OK);
    CHECK(nDeviceIsMigDeviceHandle(on, &is_mig) == N_OK && is_mig == 0);
    SAY("%s\"%s\":{\"memory\":{\"total\":%llu,\"free\":%llu,\"used\":%llu},\"window\":{\"total\":%llu,\"used\":%llu},",
        index ? "," : "", uuid, memory.total, memory.free, memory.used, window.total, window.used);
    lists(on, "compute", nDeviceGetComputeRunningProcesses, nDeviceGetComputeRunningProcesses_v2,
          nDeviceGetComputeRunningProcesses_v3, 0);
    lists(on, "graphics", nDeviceGetGraphicsRunningProcesses, nDeviceGetGraphicsRunningProcesses_v2,
          nDeviceGetGraphicsRunningProcesses_v3, 1);
    lists(on, "mps", nDeviceGetMPSComputeRunningProcesses, nDeviceGetMPSComputeRunningProcesses_v2,
          nDeviceGetMPSComputeRunningProcesses_v3, 2);
    accounting(on);
    utilization(on);
    SAY("\"index\":%u}", index);
}
static void tell(CUmemoryPool pool)
{
    static const int ABOUT_MEMORY[] = {9 /* constant */, 8 /* shared */, 11 /* pitch */, 37 /* bus width */, 38 /* L2 */,
                                       81, 83 /* managed */, 103 /* virtual */, 115 /* pools */};
    int count = 0;
    length = 0;
    SAY("{\"pid\":%d,\"cuda\":{", getpid());
    OK(cuDeviceGetCount(&count));
    for (int i = 0; i < count; i++) {
        CUuuid id;
        CUdevice on;
        size_t total = 0;
        OK(cuDeviceGet(&on, i));
        OK(cuDeviceGetUuid_v2(&id, on));
        OK(cuDeviceTotalMem_v2(&total, on));
        SAY("%s\"GPU-", i ? "," : "");
        for (int b = 0; b < 16; b++) SAY("%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", id.bytes[b]);
        SAY("\":{\"total\":%zu,\"attributes\":[", total);
        for (size_t a = 0; a < sizeof ABOUT_MEMORY / sizeof *ABOUT_MEMORY; a++) {
            int value = -1;
            OK(cuDeviceGetAttribute(&value, ABOUT_MEMORY[a], on));
            SAY("%s%d", a ? "," : "", value);
        }
        SAY("]}");
    }
    size_t free_now = 0, total = 0;
    unsigned long long reserved = 0, used = 0;
    OK(cuMemGetInfo_v2(&free_now, &total));
    OK(cuMemPoolGetAttribute(pool, 5 /* reserved now */, &reserved));
    OK(cuMemPoolGetAttribute(pool, 7 /* used now */, &used));
    SAY("},\"info\":{\"free\":%zu,\"total\":%zu},\"pool\":{\"reserved\":%llu,\"used\":%llu},\"nvml\":{", free_now, total,
        reserved, used);
    unsigned gpus = 0;
    Device on;
    CHECK(nDeviceGetCount_v2(&gpus) == N_OK);
    for (unsigned i = 0; i < gpus; i++)
        if (nDeviceGetHandleByIndex_v2(i, &on) == N_OK) one_gpu(i, on);
        else CHECK(!"a handle of each index");
    CHECK(nDeviceGetHandleByIndex_v2(gpus, &on) == N_INVALID);
    SAY("}}");
    printf("told %s\n", text);
}
int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 0) : 0;
    CUdeviceptr held = 0, pooled = 0;
    CUmemoryPool pool = NULL;
    unsigned long long keep = ~0ull;
    char line[128];
    setvbuf(stdout, NULL, _IOLBF, 0);
    setup();
    nvml_open();
    if (bytes) OK(cuMemAlloc_v2(&held, bytes));
    OK(cuDeviceGetDefaultMemPool(&pool, device));
    OK(cuMemPoolSetAttribute(pool, 4 /* release threshold */, &keep));
    OK(cuMemAllocAsync(&pooled, 8 << 20, NULL));
    OK(cuMemFreeAsync(pooled, NULL));
    OK(cuMemAllocAsync(&pooled, 4 << 20, NULL));
    OK(cuCtxSynchronize());
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        unsigned ms = 0;
        if (sscanf(line, "work %u", &ms) == 1) {
            for (; ms; ms--) OK(launch(spin, NULL, 1000000));
            OK(cuCtxSynchronize());
            printf("worked\n");
        } else {
            tell(pool);
        }
    }
    return finish("answers");
}
