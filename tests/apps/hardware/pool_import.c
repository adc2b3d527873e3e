/* Who has the memory of a pool that another process imported, once its owner has freed and trimmed it: NVML's figures of
 * both, as the driver tells them, and what CUDA says is in use. docs/hardware.md, "pools' memory". */
#include "nvml.h"
#include "../conformance/second.h"
enum { FILE_DESCRIPTOR = 1, RESERVED_CURRENT = 5 };
typedef struct { unsigned char bytes[64]; } PointerData;
#define SIZE (1024 * MIB)

static void figures(const char *who, const char *when)
{
    char name[96];
    int entries, listed;
    usleep(700000);
    snprintf(name, sizeof name, "%s_%s_nvml", who, when);
    report(name, own_used(&entries, &listed), "bytes");
    snprintf(name, sizeof name, "%s_%s_used", who, when);
    size_t free_now = 0, total = 0;
    OK(cuMemGetInfo_v2(&free_now, &total));
    report(name, (double)(total - free_now), "bytes");
}
int main(int argc, char **argv)
{
    OPTIONAL(cuMemPoolExportToShareableHandle, (void *, CUmemoryPool, int, unsigned long long));
    OPTIONAL(cuMemPoolImportFromShareableHandle, (CUmemoryPool *, void *, int, unsigned long long));
    OPTIONAL(cuMemPoolExportPointer, (PointerData *, CUdeviceptr));
    OPTIONAL(cuMemPoolImportPointer, (CUdeviceptr *, CUmemoryPool, PointerData *));
    if (!cuMemPoolImportPointer || !cuMemPoolExportPointer) skip("this driver shares no pools");
    int imports = argc > 1 && !strcmp(argv[1], "importer");
    CUmemoryPool pool = NULL;
    CUdeviceptr p = 0;
    PointerData data;
    int fd = -1;
    if (imports) {
        /* The second process prints on stderr: its standard output is the socket. */
        be_second();
        int out = dup(2);
        stdout = fdopen(out, "w");
    }
    nvml_open();
    setup();
    if (imports) {
        fd = hear(&data, sizeof data);
        OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, FILE_DESCRIPTOR, 0));
        OK(cuMemPoolImportPointer(&p, pool, &data));
        close(fd);
        uint64_t reserved = 0;
        if (cuMemPoolGetAttribute(pool, RESERVED_CURRENT, &reserved)) not_measured("importer_reserved", "refused");
        else report("importer_reserved", (double)reserved, "bytes");
        figures("importer", "imported");
        OK(cuMemFreeAsync(p, NULL));
        OK(cuCtxSynchronize());
        figures("importer", "freed");
        meet();
        meet();
        figures("importer", "owner_trimmed");
        OK(cuMemPoolDestroy(pool));
        figures("importer", "destroyed");
        meet();
        meet();
        return failures != 0;
    }
    static const PoolProps shareable = {.alloc_type = 1, .handle_types = FILE_DESCRIPTOR, .location = {1, 0}};
    OK(cuMemPoolCreate(&pool, &shareable));
    OK(cuMemPoolExportToShareableHandle(&fd, pool, FILE_DESCRIPTOR, 0));
    figures("owner", "before");
    OK(cuMemAllocFromPoolAsync(&p, SIZE, pool, NULL));
    OK(cuCtxSynchronize());
    figures("owner", "allocated");
    OK(cuMemPoolExportPointer(&data, p));
    start_second(argv[0], "importer");
    say(&data, sizeof data, fd);
    close(fd);
    meet();
    OK(cuMemFreeAsync(p, NULL));
    OK(cuCtxSynchronize());
    OK(cuMemPoolTrimTo(pool, 0));
    figures("owner", "trimmed");
    meet();
    meet();
    figures("owner", "other_destroyed");
    OK(cuMemPoolDestroy(pool));
    figures("owner", "destroyed");
    meet();
    end_second();
    figures("owner", "other_ended");
    return failures != 0;
}
