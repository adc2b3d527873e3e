/* The start of a small GPU program: a context, an allocation, and the end. */
#include <stdint.h>
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(uintptr_t *, unsigned long);
int main(void)
{
    void *context;
    uintptr_t p;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&p, 1 << 20);
}
