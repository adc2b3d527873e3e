/* What a driver answers to every look-up: each exported name, and each of its base names, at every version of the interface
 * and with every flag, by cuGetProcAddress and cuGetProcAddress_v2, and by dlsym. With and without the shim the output must be the same.
 *   lookups [SHIM_FILE_NAME]    as a tenant: a function that the shim has, but the driver's own address, is a failure
 * Needs a driver's file, no GPU. docs/hardware.md, "look-ups". A line: NAME FLAGS FROM-TO:OLD_STATUS/STATUS/QUERY/SYMBOL ... */
#define _GNU_SOURCE
#include "exports.h"
#include <dlfcn.h>

typedef int (*Get)(const char *, void **, int, unsigned long long);
typedef int (*Get2)(const char *, void **, int, unsigned long long, int *);
static const int VERSIONS[] = {3020, 4000, 5000, 7000, 7050, 8000, 9000, 10000, 10010, 11000, 11010, 11020, 11030, 11040,
                               11060, 11070, 11080, 12000, 12010, 12020, 12030, 12040, 12050, 12080, 12090, 13000, 13010};
static Exports driver, shim;
static Get get;
static Get2 get2;
static long asked, hooked, failed;
static int untouched;

/* The name under which the bare driver knows what this address is. */
static const char *symbol_of(void *address, const char *asked_for)
{
    static char text[256];
    const char *name;
    if (address == &untouched) return "untouched";
    if (!address) return "null";
    if ((name = name_at(&driver, (uintptr_t)address))) {
        if (shim.count && export_named(&shim, name)) {
            printf("FAIL %s leads past the shim: %s\n", asked_for, name);
            failed++;
        }
        return name;
    }
    if ((name = name_at(&shim, (uintptr_t)address))) {
        const Export *real = export_named(&driver, name);
        hooked++;
        return real ? name_at(&driver, real->address) : name;
    }
    Dl_info info;
    snprintf(text, sizeof text, "not-exported:%s", dladdr(address, &info) ? strrchr(info.dli_fname, '/') + 1 : "?");
    return text;
}
/* The answer for one version: both forms' status, the query's result, the function, which must be one for both forms. */
static void answer(char *text, size_t size, const char *name, int version, unsigned flags)
{
    void *address = &untouched, *old = &untouched;
    int query = -9, status = get2 ? get2(name, &address, version, flags, &query) : -1;
    int old_status = get(name, &old, version, flags);
    asked++;
    if (!get2) address = old;
    if (old && address && old != address) {
        printf("FAIL %s %d %u: the two forms lead to two functions\n", name, version, flags);
        failed++;
    }
    snprintf(text, size, "%d/%d/%d/%s", old_status, status, query, symbol_of(address, name));
}
static void ask(const char *name)
{
    for (unsigned flags = 0; flags < 4; flags++) {
        char last[320] = "", now[320];
        int from = 0, count = sizeof VERSIONS / sizeof *VERSIONS;
        printf("%s %u", name, flags);
        for (int i = 0; i <= count; i++) {
            if (i < count) answer(now, sizeof now, name, VERSIONS[i], flags);
            if (i && (i == count || strcmp(now, last))) {
                printf(" %d-%d:%s", VERSIONS[from], VERSIONS[i - 1], last);
                from = i;
            }
            strcpy(last, now);
        }
        printf("\n");
    }
}
/* NAME without _v2, _v3 ..., _ptsz, _ptds; the caller gives it back. */
static char *base_of(const char *name)
{
    char *base = strdup(name), *end;
    size_t length = strlen(base);
    if (length > 5 && (!strcmp(base + length - 5, "_ptsz") || !strcmp(base + length - 5, "_ptds"))) base[length - 5] = 0;
    if ((end = strrchr(base, '_')) && end[1] == 'v' && strspn(end + 2, "0123456789") == strlen(end + 2)) *end = 0;
    return base;
}
/* Where the file of this name is loaded. */
typedef struct { const char *name, *path; uintptr_t base; } Loaded;
static int is_loaded(struct dl_phdr_info *info, size_t size, void *argument)
{
    Loaded *wanted = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (strcmp(slash ? slash + 1 : info->dlpi_name, wanted->name)) return 0;
    wanted->path = strdup(info->dlpi_name);
    wanted->base = info->dlpi_addr;
    return 1;
}
int main(int argc, char **argv)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    struct link_map *map;
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, &map)) {
        printf("skip: %s\n", dlerror());
        return 77;
    }
    driver = read_exports(map->l_name, map->l_addr, "cu");
    if (argc > 1) {
        Loaded wanted = {argv[1], NULL, 0};
        if (!dl_iterate_phdr(is_loaded, &wanted)) {
            printf("FAIL %s is not loaded\n", argv[1]);
            return 1;
        }
        shim = read_exports(wanted.path, wanted.base, "cu");
    }
    get = (Get)dlsym(library, "cuGetProcAddress");
    get2 = (Get2)dlsym(library, "cuGetProcAddress_v2");
    if (!get) {
        printf("skip: this driver has no cuGetProcAddress\n");
        return 77;
    }
    for (size_t i = 0; i < driver.count; i++) {
        const char *name = driver.rows[i].name;
        printf("dlsym %s %s\n", name, symbol_of(dlsym(library, name), name));
        ask(name);
        char *base = base_of(name);
        if (strcmp(base, name) && !export_named(&driver, base)) ask(base);
        free(base);
    }
    fprintf(stderr, "exported_names %zu names\nlook_ups %ld look-ups\nhooked_answers %ld answers\n", driver.count, asked, hooked);
    return failed != 0;
}
