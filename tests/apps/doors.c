/* Which library answers at each door of I4? doors TABLE [SHIM]: every name of the table must be the shim's by every
 * route; without SHIM the same doors must answer at all, by whomever.
 * A line of the table is "SYMBOL BASE VERSION FLAGS TWIN": how cuGetProcAddress is asked for the symbol, or BASE "-"; a
 * symbol before it that has the same address in the bare driver, or itself. Prints such twins: "TWIN SYMBOL SYMBOL".
 * Routes: dlopen + dlsym, dlsym by absolute path and with RTLD_DEEPBIND, RTLD_DEFAULT before and after the driver is
 * loaded, RTLD_NEXT, dlvsym, dlsym obtained through dlsym and dlvsym, cuGetProcAddress and _v2, each looked up through
 * itself. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int failures;
static const char *shim;
static const char *owner(void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info)) return "(none)";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}
static void expect(const char *route, const char *name, void *address)
{
    const char *from = owner(address);
    if (!address || (shim && strcmp(from, shim) != 0)) {
        printf("FAIL %s of %s is %s\n", route, name, from);
        failures++;
    }
}
static void expect_not(const char *route, const char *name, void *address)
{
    if (address && shim && strcmp(owner(address), shim) == 0) {
        printf("FAIL %s of %s is the shim's\n", route, name);
        failures++;
    }
}
int main(int argc, char **argv)
{
    FILE *table = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!table) return 2;
    shim = argc > 2 ? argv[2] : NULL;
    /* No driver is loaded yet: RTLD_DEFAULT finds nothing, although the shim exports the name, and dlerror says so. */
    dlerror();
    if (dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")) { printf("FAIL RTLD_DEFAULT before the driver\n"); failures++; }
    if (!dlerror()) { printf("FAIL no dlerror\n"); failures++; }
    /* Names that are not in the table keep their meaning: RTLD_NEXT from here is libc's. */
    if (dlsym(RTLD_NEXT, "malloc") == NULL) { printf("FAIL RTLD_NEXT malloc\n"); failures++; }
    dlerror();
    if (dlsym(RTLD_DEFAULT, "cudnnCreate") || dlsym(RTLD_DEFAULT, "cuMemAllocNothing")) failures++;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!lib || !nvml) { printf("skip: %s\n", dlerror()); return 77; }
    void *(*by_version)(void *, const char *, const char *) =
        (void *(*)(void *, const char *, const char *))dlsym(RTLD_DEFAULT, "dlvsym");
    void *(*sym_again)(void *, const char *) = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "dlsym");
    void *(*sym_by_version)(void *, const char *) = NULL;
#ifdef __x86_64__
    sym_by_version = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
#else
    sym_by_version = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.17");
#endif
    expect_not("dlsym", "cuInitX", dlsym(lib, "cuDeviceGetPCIBusId"));
    int (*get)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(lib, "cuGetProcAddress_v2");
    int (*old)(const char *, void **, int, unsigned long long) =
        (int (*)(const char *, void **, int, unsigned long long))dlsym(lib, "cuGetProcAddress");
    char n[128], base[128], twin[128];
    static struct { char name[128]; void *address; } known[1024];
    int version, rows = 0, asked = 0;
    unsigned long long flags;
    while (fscanf(table, "%127s %127s %d %llu %127s", n, base, &version, &flags, twin) == 5) {
        void *from = strncmp(n, "nvml", 4) == 0 ? nvml : lib, *first = dlsym(from, n);
        for (int i = 0; i < rows; i++)
            if (known[i].address == first) {
                printf("TWIN %s %s\n", n, known[i].name);
                break;
            }
        if (rows == 1024) return 3;
        strcpy(known[rows].name, n);
        known[rows++].address = first;
        expect("dlsym", n, first);
        expect("RTLD_DEFAULT", n, dlsym(RTLD_DEFAULT, n));
        expect("RTLD_NEXT", n, dlsym(RTLD_NEXT, n));
        /* glibc finds an unversioned name by version only in a library without any version table: often nothing,
         * with the shim as without. What it finds must be the shim's. */
        if (dlvsym(from, n, "any")) expect("dlvsym", n, dlvsym(from, n, "any"));
        if (by_version && by_version(from, n, "any")) expect("dlvsym through dlsym", n, by_version(from, n, "any"));
        if (sym_again) expect("dlsym through dlsym", n, sym_again(from, n));
        if (sym_by_version) expect("dlsym through dlvsym", n, sym_by_version(from, n));
        /* By absolute path, with RTLD_DEEPBIND. */
        Dl_info info;
        void *unhooked = dlsym(from, from == nvml ? "nvmlErrorString" : "cuDeviceGetPCIBusId");
        void *path = dladdr(unhooked, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_DEEPBIND) : NULL;
        expect("absolute path", n, path ? dlsym(path, n) : NULL);
        if (path) dlclose(path);
        if (strcmp(base, "-") == 0) continue;
        /* cuGetProcAddress by version and flags: the variant is the driver's choice, the address is the shim's. */
        void *p = NULL, *q = NULL;
        int status = -1;
        asked++;
        if (get(base, &p, version, flags, &status) || status) failures++;
        expect("cuGetProcAddress_v2", n, p);
        if (p != first && p != dlsym(from, twin)) {
            printf("FAIL cuGetProcAddress_v2(%s, %d, %llu) is not %s\n", base, version, flags, n);
            failures++;
        }
        if (old(base, &q, version, flags) || p != q) { printf("FAIL v1 differs: %s\n", base); failures++; }
    }
    void *again = NULL;
    int status = -1;
    get("cuGetProcAddress", &again, 12000, 0, &status);
    int (*second)(const char *, void **, int, unsigned long long, int *) = (int (*)(const char *, void **, int, unsigned long long, int *))again;
    void *through = NULL;
    if (second) second("cuMemAlloc", &through, 12000, 0, &status);
    expect("cuGetProcAddress through itself", "cuMemAlloc", through);
    printf("%s doors: %d rows, %d by cuGetProcAddress\n", failures ? "FAILED" : "passed", rows, asked);
    return failures != 0;
}
