/* A library with an indirect function whose resolver asks for symbols while the loader still relocates other libraries, a
 * preloaded one among them. */
#define _GNU_SOURCE
#include <dlfcn.h>

typedef int (*function)(void);
static int found(void) { return 1; }
static int missing(void) { return 0; }
static function resolve(void)
{
    return dlsym(RTLD_DEFAULT, "getpid") && !dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "GLIBC_2.2.5") ? found : missing;
}
__attribute__((visibility("hidden"))) int chosen(void) __attribute__((ifunc("resolve")));
int resolved(void) { return chosen(); }
