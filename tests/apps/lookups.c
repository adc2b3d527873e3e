/* Prints what cuGetProcAddress and _v2 answer to each row of a table "name version flags symbol" (argv[1]): status and
 * name of the symbol, with "*" if a library named argv[2] owns it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
typedef int (*Get)(const char *, void **, int, unsigned long long);
typedef int (*Get2)(const char *, void **, int, unsigned long long, int *);
static const char *shim;
static void show(void *address)
{
    Dl_info info;
    if (!address || !dladdr(address, &info)) {
        printf(" -");
        return;
    }
    const char *file = strrchr(info.dli_fname, '/');
    printf(" %s", file && strcmp(file + 1, shim) == 0 ? "shim" : "driver");
}
int main(int argc, char **argv)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    FILE *table = argc > 2 ? fopen(argv[1], "r") : NULL;
    if (!lib || !table) return 2;
    shim = argv[2];
    Get get = (Get)dlsym(lib, "cuGetProcAddress");
    Get2 get2 = (Get2)dlsym(lib, "cuGetProcAddress_v2");
    char name[128], symbol[128];
    int version;
    unsigned long long flags;
    while (fscanf(table, "%127s %d %llu %127s", name, &version, &flags, symbol) == 4) {
        void *old = NULL, *new = NULL, *quiet = NULL;
        int found = -1;
        int first = get(name, &old, version, flags), second = get2(name, &new, version, flags, &found);
        int third = get2(name, &quiet, version, flags, NULL);
        printf("%s %d %llu %d %d %d %d", symbol, version, flags, first, second, third, found);
        show(old);
        show(new);
        show(quiet);
        /* The variant is the driver's own: the address that this very symbol has. */
        printf(" %s\n", new == dlsym(lib, symbol) || (second == 0 && new == old && new == quiet) ? "same" : "other");
    }
    return 0;
}
