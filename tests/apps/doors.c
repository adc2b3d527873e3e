/* Which library answers at each door of I4? doors SHIM_NAME: every hooked name must be the shim's by every route.
 * With DOORS_BARE=1 (no shim) it only checks that the same doors answer at all.
 * Routes: dlopen + dlsym, dlsym by absolute path, RTLD_DEFAULT before and after the driver is loaded, RTLD_NEXT,
 * dlvsym, dlsym obtained through dlsym and dlvsym, cuGetProcAddress and _v2, each looked up through itself. */
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
    static const char *names[] = {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2", "cuLaunchKernel", "cuLaunchKernel_ptsz",
                                  "cuMemAllocAsync_ptsz", "cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAlloc"};
    shim = argc > 1 ? argv[1] : NULL;
    /* No driver is loaded yet: RTLD_DEFAULT finds nothing, although the shim exports the name, and dlerror says so. */
    dlerror();
    if (dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")) { printf("FAIL RTLD_DEFAULT before the driver\n"); failures++; }
    if (!dlerror()) { printf("FAIL no dlerror\n"); failures++; }
    /* Names that are not in the table keep their meaning: RTLD_NEXT from here is libc's. */
    if (dlsym(RTLD_NEXT, "malloc") == NULL) { printf("FAIL RTLD_NEXT malloc\n"); failures++; }
    dlerror();
    if (dlsym(RTLD_DEFAULT, "cudnnCreate") || dlsym(RTLD_DEFAULT, "cuMemAllocNothing")) failures++;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!lib) { printf("skip: %s\n", dlerror()); return 77; }
    void *(*by_version)(void *, const char *, const char *) =
        (void *(*)(void *, const char *, const char *))dlsym(RTLD_DEFAULT, "dlvsym");
    void *(*sym_again)(void *, const char *) = (void *(*)(void *, const char *))dlsym(RTLD_DEFAULT, "dlsym");
    void *(*sym_by_version)(void *, const char *) = NULL;
#ifdef __x86_64__
    sym_by_version = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
#else
    sym_by_version = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.17");
#endif
    Dl_info info;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *n = names[i];
        expect("dlsym", n, dlsym(lib, n));
        expect("RTLD_DEFAULT", n, dlsym(RTLD_DEFAULT, n));
        expect("RTLD_NEXT", n, dlsym(RTLD_NEXT, n));
        /* glibc finds an unversioned name by version only in a library without any version table: often nothing,
         * with the shim as without. What it finds must be the shim's. */
        if (dlvsym(lib, n, "any")) expect("dlvsym", n, dlvsym(lib, n, "any"));
        if (by_version && by_version(lib, n, "any")) expect("dlvsym through dlsym", n, by_version(lib, n, "any"));
        if (sym_again) expect("dlsym through dlsym", n, sym_again(lib, n));
        if (sym_by_version) expect("dlsym through dlvsym", n, sym_by_version(lib, n));
    }
    expect_not("dlsym", "cuInitX", dlsym(lib, "cuDeviceGetPCIBusId"));
    /* cuGetProcAddress by version and flags: the variant is the driver's choice, the address is the shim's. */
    int (*get)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(lib, "cuGetProcAddress_v2");
    int (*old)(const char *, void **, int, unsigned long long) =
        (int (*)(const char *, void **, int, unsigned long long))dlsym(lib, "cuGetProcAddress");
    static const struct { const char *base; int version; unsigned long long flags; const char *symbol; } asked[] = {
        {"cuMemAlloc", 2000, 0, "cuMemAlloc"}, {"cuMemAlloc", 12000, 0, "cuMemAlloc_v2"},
        {"cuLaunchKernel", 12000, 1, "cuLaunchKernel"}, {"cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"},
        {"cuMemAllocAsync", 12000, 2, "cuMemAllocAsync_ptsz"}, {"cuMemGetInfo", 11080, 0, "cuMemGetInfo_v2"},
        {"cuGetProcAddress", 11080, 0, "cuGetProcAddress"}, {"cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"}};
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        void *p = NULL, *q = NULL;
        int status = -1;
        if (get(asked[i].base, &p, asked[i].version, asked[i].flags, &status)) failures++;
        expect("cuGetProcAddress_v2", asked[i].symbol, p);
        if (p != dlsym(lib, asked[i].symbol)) {
            printf("FAIL cuGetProcAddress_v2(%s, %d, %llu) is not %s\n", asked[i].base, asked[i].version, asked[i].flags, asked[i].symbol);
            failures++;
        }
        if (old(asked[i].base, &q, asked[i].version, asked[i].flags) || p != q) { printf("FAIL v1 differs: %s\n", asked[i].base); failures++; }
    }
    void *again = NULL;
    int status = -1;
    get("cuGetProcAddress", &again, 12000, 0, &status);
    int (*second)(const char *, void **, int, unsigned long long, int *) = (int (*)(const char *, void **, int, unsigned long long, int *))again;
    void *through = NULL;
    if (second) second("cuMemAlloc", &through, 12000, 0, &status);
    expect("cuGetProcAddress through itself", "cuMemAlloc", through);
    /* By absolute path, and with RTLD_DEEPBIND. */
    if (dladdr(dlsym(lib, "cuDeviceGetPCIBusId"), &info)) {
        void *path = dlopen(info.dli_fname, RTLD_NOW | RTLD_DEEPBIND);
        expect("absolute path", "cuMemAlloc_v2", path ? dlsym(path, "cuMemAlloc_v2") : NULL);
    }
    printf("%s doors\n", failures ? "FAILED" : "passed");
    return failures != 0;
}
