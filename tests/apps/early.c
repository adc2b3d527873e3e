/* Look-ups at moments when a library must not load, lock or allocate: inside a replacement of malloc (also while
 * dlopen maps the driver), before constructors, in a constructor; and a driver that is closed and opened again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

static void *(*next_malloc)(size_t);
static int asked;
static __thread int inside;
void *malloc(size_t bytes)
{
    if (!next_malloc) next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    if (!inside && asked < 200) {
        inside = 1;
        asked++;
        dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        dlsym(RTLD_NEXT, "cuMemAlloc_v2");
        dlsym(RTLD_NEXT, "dlsym");
        dlerror();
        inside = 0;
    }
    return next_malloc(bytes);
}
static void before_constructors(void)
{
    dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    dlerror();
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(void) = before_constructors;
static int initialised = -1;
__attribute__((constructor)) static void in_constructor(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = lib ? (int (*)(unsigned))dlsym(lib, "cuInit") : NULL;
    if (init) initialised = init(0);
}
int main(void)
{
    if (initialised) return printf("FAIL cuInit in a constructor: %d\n", initialised), 1;
    for (int i = 0; i < 5; i++) {
        void *lib = dlopen("libcuda.so.1", RTLD_LAZY);
        unsigned long long p;
        int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(lib, "cuMemAlloc_v2");
        int code = alloc(&p, 16);
        if (code != 201 /* no context */) return printf("FAIL cuMemAlloc without a context: %d\n", code), 1;
        dlclose(lib);
    }
    printf("passed early\n");
    return 0;
}
