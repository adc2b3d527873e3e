/* A driver like WSL2's: each function finds the one of the same name in a second library, which it loads, by dlsym
 * (HAMi-core issue 326), and calls it. cuGetProcAddress therefore gives addresses in the second library. LIST has the names,
 * one "X(name)" a line; VCUDA_BEHIND names the second library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

static void *find(const char *name)
{
    static void *second;
    if (!second) second = dlopen(getenv("VCUDA_BEHIND"), RTLD_NOW);
    void *function = second ? dlsym(second, name) : NULL;
    /* Its own, not some other library's: else the calls would never end. */
    Dl_info where, here;
    if (!function || !dladdr(function, &where) || !dladdr((void *)find, &here)) abort();
    if (where.dli_fbase == here.dli_fbase || !dladdr(second ? function : NULL, &where)) abort();
    return function;
}
#include "forward.h"
__attribute__((visibility("hidden"), used)) void *find_one(const char *name) { return find(name); }
#include LIST
