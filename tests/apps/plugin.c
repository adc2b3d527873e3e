/* A library that uses the driver, for plugins.c. As PLUGIN_LINKED it has the driver among its dependencies; otherwise it
 * opens and asks for it as NVIDIA's static runtime does. Its own `plugin_name` has a namesake in the program, which a
 * library opened with RTLD_DEEPBIND must not see. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
typedef int (*Alloc)(unsigned long long *, size_t);
#ifdef PLUGIN_LINKED
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(unsigned long long *, size_t);
/* A word in the library's data, beside the one by which it calls. */
Alloc plugin_pointer = cuMemAlloc_v2;
#else
static int (*cuInit)(unsigned), (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *);
static Alloc cuMemAlloc_v2, plugin_pointer;
#endif
const char *plugin_name(void) { return "plugin"; }
const char *plugin_calls(void) { return plugin_name(); }
/* The code of cuMemAlloc; by the pointer if `by_pointer`. */
int plugin_alloc(unsigned long long *address, size_t bytes, int by_pointer)
{
#ifndef PLUGIN_LINKED
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    int (*get)(const char *, void **, int, unsigned long long, int *) = NULL;
    if (lib) get = (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(lib, "cuGetProcAddress_v2");
    int found;
    if (!get || get("cuInit", (void **)&cuInit, 12000, 0, &found) || get("cuMemAlloc", (void **)&cuMemAlloc_v2, 12000, 0, &found) ||
        get("cuDevicePrimaryCtxRetain", (void **)&cuDevicePrimaryCtxRetain, 12000, 0, &found) ||
        get("cuCtxSetCurrent", (void **)&cuCtxSetCurrent, 12000, 0, &found))
        return -1;
    plugin_pointer = cuMemAlloc_v2;
#endif
    void *context;
    int code = cuInit(0);
    if (!code) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (!code) code = cuCtxSetCurrent(context);
    return code ? -2 - code : (by_pointer ? plugin_pointer : cuMemAlloc_v2)(address, bytes);
}
