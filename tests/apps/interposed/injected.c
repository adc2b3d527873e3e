/* A library that a profiler injects, as Nsight Compute's libcuda-injection.so: it answers for the driver's name with itself,
 * which it finds by the address of `dlopen`, and passes each call on to the driver. LIST has the names, one "X(name)" a line. At
 * the end it says whether calls went through it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef void *(*Dlopen)(const char *, int);

static volatile int calls;
static Dlopen next_dlopen(void) { return (Dlopen)dlsym(RTLD_NEXT, "dlopen"); }
void *dlopen(const char *file, int mode)
{
    Dl_info own;
    if (file && strstr(file, "libcuda.so") && dladdr((void *)dlopen, &own)) return next_dlopen()(own.dli_fname, mode);
    return next_dlopen()(file, mode);
}
__attribute__((visibility("hidden"), used)) void *find_one(const char *name)
{
    static void *driver;
    if (!driver) driver = next_dlopen()("libcuda.so.1", RTLD_NOW);
    void *function = driver ? dlsym(driver, name) : NULL;
    if (!function) abort();
    calls++;
    return function;
}
#include "forward.h"
#include LIST
__attribute__((destructor)) static void tell(void)
{
    if (calls) printf("calls went through the injected library\n");
}
