/* Does what it is told, a line at a time, and says what came of it: "alloc BYTES" -> "alloc CODE", "managed BYTES" likewise,
 * "free" (what was allocated last) -> "free CODE", "info" -> "info CODE FREE TOTAL", "context" (one more, which stays) ->
 * "context CODE". Begins with "ready", ends with stdin.
 * obey private: the primary context is made by the driver's own function, past every door, as private interfaces of the
 * runtime do. */
#include "driver.h"
#include <link.h>
/* The driver's function of this name by its own table of symbols (System V gABI; DT_GNU_HASH). */
static int find_private(struct dl_phdr_info *info, size_t size, void *place)
{
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
            if (at && !strcmp(names + symbols[at].st_name, "cuDevicePrimaryCtxRetain"))
                *(void **)place = (void *)(info->dlpi_addr + symbols[at].st_value);
        while (at && !(chains[at++ - hash[1]] & 1));
    }
    return 1;
}
static void setup_privately(void)
{
    CUresult (*retain)(CUcontext *, CUdevice) = NULL;
    driver_open();
    OK(cuInit(0));
    OK(cuDeviceGet(&device, 0));
    dl_iterate_phdr(find_private, &retain);
    CHECK(retain != NULL && (void *)retain != dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain"));
    OK(retain(&context, device));
    OK(cuCtxSetCurrent(context));
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
        if (bytes) {
            CUdeviceptr p = 0;
            size_t size = strtoull(bytes, NULL, 0);
            int is_managed = !strncmp(line, "managed", 7);
            CUresult code = is_managed ? cuMemAllocManaged(&p, size, 1) : cuMemAlloc_v2(&p, size);
            if (code == SUCCESS && count < 1024) held[count++] = p;
            printf("%s %d\n", is_managed ? "managed" : "alloc", code);
        } else if (!strncmp(line, "free", 4)) {
            printf("free %d\n", count ? cuMemFree_v2(held[--count]) : -1);
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
