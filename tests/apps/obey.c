/* Does what it is told, a line at a time, and says what came of it: "alloc BYTES" -> "alloc CODE", "managed BYTES" likewise,
 * "pooled BYTES" likewise from a pool of managed memory that has no preferred location,
 * "free" (what was allocated last) -> "free CODE", "info" -> "info CODE FREE TOTAL", "context" (one more, which stays) ->
 * "context CODE". Begins with "ready", ends with stdin.
 * "unseen BYTES" -> "unseen CODE": allocated by the driver's own function, past every door.
 * "launch 1" -> "launch CODE": a kernel of a module that was loaded likewise.
 * obey private: so is the primary context made, as private interfaces of the runtime do. */
#include "driver.h"
#include <link.h>
/* The driver's function of this name by its own table of symbols (System V gABI; DT_GNU_HASH). */
struct private {
    const char *name;
    void *found;
};
static int find_private(struct dl_phdr_info *info, size_t size, void *sought)
{
    struct private *private = sought;
    if (!strstr(info->dlpi_name, "libcuda.so")) return 0;
    const ElfW(Dyn) *entry = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hash = NULL;
    for (; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB) names = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_GNU_HASH) hash = (const uint32_t *)entry->d_un.d_ptr;
    }
    const uint32_t *buckets = hash + 4 + hash[2] * sizeof(ElfW(Addr)) / 4, *chains = buckets + hash[0];
    for (uint32_t bucket = 0; bucket < hash[0]; bucket++) {
        uint32_t at = buckets[bucket];
        do
            if (at && !strcmp(names + symbols[at].st_name, private->name))
                private->found = (void *)(info->dlpi_addr + symbols[at].st_value);
        while (at && !(chains[at++ - hash[1]] & 1));
    }
    /* The driver's front, which comes before it, has none. */
    return private->found != NULL;
}
static void *own_function(const char *name)
{
    struct private sought = {name, NULL};
    dl_iterate_phdr(find_private, &sought);
    CHECK(sought.found != NULL && sought.found != dlsym(RTLD_DEFAULT, name));
    return sought.found;
}
static void setup_privately(void)
{
    CUresult (*retain)(CUcontext *, CUdevice);
    driver_open();
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    retain = own_function("cuDevicePrimaryCtxRetain");
    OK(retain(&context, device));
    OK(cuCtxSetCurrent(context));
}
static CUresult pooled(CUdeviceptr *p, size_t bytes)
{
    static CUmemoryPool pool;
    PoolProps managed = {.alloc_type = 2};
    if (!pool) OK(cuMemPoolCreate(&pool, &managed));
    return cuMemAllocFromPoolAsync(p, bytes, pool, NULL);
}
int main(int argc, char **argv)
{
    static CUdeviceptr held[1024];
    int count = 0;
    char line[64];
    if (argc > 1 && !strcmp(argv[1], "private")) setup_privately();
    else setup();
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        char *bytes = strchr(line, ' ');
        if (bytes && !strncmp(line, "unseen", 6)) {
            CUdeviceptr p = 0;
            CUresult (*alloc)(CUdeviceptr *, size_t) = own_function("cuMemAlloc_v2");
            printf("unseen %d\n", alloc(&p, strtoull(bytes, NULL, 0)));
        } else if (bytes && !strncmp(line, "launch", 6)) {
            CUresult (*load)(CUmodule *, const void *) = own_function("cuModuleLoadData");
            OK(load(&module, SPIN_PTX));
            OK(cuModuleGetFunction(&spin, module, "vcuda_spin_ns"));
            printf("launch %d\n", launch(spin, NULL, 1000));
        } else if (bytes) {
            CUdeviceptr p = 0;
            size_t size = strtoull(bytes, NULL, 0);
            CUresult code;
            if (!strncmp(line, "managed", 7)) code = cuMemAllocManaged(&p, size, 1);
            else if (!strncmp(line, "pooled", 6)) code = pooled(&p, size);
            else code = cuMemAlloc_v2(&p, size);
            if (code == SUCCESS && count < 1024) held[count++] = p;
            printf("%.*s %d\n", (int)(bytes - line), line, code);
        } else if (!strncmp(line, "free", 4)) {
            printf("free %d\n", count ? cuMemFree_v2(held[--count]) : -1);
            /* Only then do pools give back. */
            OK(cuCtxSynchronize());
        } else if (!strncmp(line, "context", 7)) {
            CUcontext more = NULL;
            printf("context %d\n", cuCtxCreate_v2(&more, 0, device));
            if (more) OK(cuCtxSetCurrent(context));
        } else {
            size_t left = 0, total = 0;
            CUresult code = cuMemGetInfo_v2(&left, &total);
            printf("info %d %zu %zu\n", code, left, total);
        }
        fflush(stdout);
    }
    return 0;
}
