/* A user's own preloaded library, such as a tracer: counts the program's allocations and launches, and passes each on to the
 * function behind. At the end it prints both numbers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

static int allocations, launches;

int cuMemAlloc_v2(unsigned long long *place, size_t bytes)
{
    int (*next)(unsigned long long *, size_t) = dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    allocations++;
    return next(place, bytes);
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra)
{
    int (*next)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        dlsym(RTLD_NEXT, "cuLaunchKernel");
    launches++;
    return next(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

__attribute__((destructor)) static void tell(void)
{
    if (allocations) printf("seen %d allocations %d launches\n", allocations, launches);
}
