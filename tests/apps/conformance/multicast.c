/* Multicast objects: no memory of their own, what is bound to them is held. CUDA Driver API: "Multicast Object
 * Management". */
#include <stddef.h>
typedef struct { unsigned devices; size_t size; unsigned long long handle_types, flags; } MulticastProp;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMulticastCreate, cuMulticastCreate, 12010, (CUmemHandle *, const MulticastProp *))                             \
    X(cuMulticastAddDevice, cuMulticastAddDevice, 12010, (CUmemHandle, CUdevice))                                      \
    X(cuMulticastBindMem, cuMulticastBindMem, 12010,                                                                   \
      (CUmemHandle, size_t, CUmemHandle, size_t, size_t, unsigned long long))                                          \
    X(cuMulticastBindAddr, cuMulticastBindAddr, 12010, (CUmemHandle, size_t, CUdeviceptr, size_t, unsigned long long)) \
    X(cuMulticastUnbind, cuMulticastUnbind, 12010, (CUmemHandle, CUdevice, size_t, size_t))                            \
    X(cuMulticastGetGranularity, cuMulticastGetGranularity, 12010, (size_t *, const MulticastProp *, int))
#include "../driver.h"
static size_t free_now(void)
{
    size_t left = 0, total;
    OK(cuMemGetInfo_v2(&left, &total));
    return left;
}
int main(void)
{
    int supported = 0;
    setup();
    OK(cuDeviceGetAttribute(&supported, 132 /* MULTICAST_SUPPORTED */, device));
    if (!supported) {
        printf("skip: no multicast\n");
        return 77;
    }
    MulticastProp prop = {.devices = 1, .size = 1};
    AllocationProp memory_prop = {.type = 1, .location = {1, device}};
    size_t unit = 0, memory_unit = 0;
    OK(cuMulticastGetGranularity(&unit, &prop, 0));
    OK(cuMemGetAllocationGranularity(&memory_unit, &memory_prop, 0));
    CHECK(unit > 0 && unit % memory_unit == 0);
    EXPECT(INVALID_VALUE, cuMulticastGetGranularity(NULL, &prop, 0));
    CUmemHandle object = 0, memory = 0;
    EXPECT(INVALID_VALUE, cuMulticastCreate(&object, &prop)); /* no multiple */
    size_t size = 16 * unit;
    prop.size = 2 * size;
    EXPECT(INVALID_VALUE, cuMulticastCreate(NULL, &prop));
    EXPECT(INVALID_VALUE, cuMulticastCreate(&object, NULL));
    prop.flags = 1;
    EXPECT(INVALID_VALUE, cuMulticastCreate(&object, &prop));
    prop.flags = 0;
    size_t before = free_now();
    OK(cuMulticastCreate(&object, &prop));
    CHECK(free_now() == before);
    EXPECT(INVALID_DEVICE, cuMulticastAddDevice(object, 1000));
    OK(cuMulticastAddDevice(object, device));
    CHECK(cuMulticastAddDevice(object, device) != SUCCESS);
    OK(cuMemCreate(&memory, size, &memory_prop, 0));
    size_t made = free_now();
    CHECK(before - made >= size);
    EXPECT(INVALID_VALUE, cuMulticastBindMem(object, 1, memory, 0, size, 0));
    EXPECT(INVALID_VALUE, cuMulticastBindMem(object, 0, memory, 0, size + unit, 0)); /* more than the memory */
    EXPECT(INVALID_VALUE, cuMulticastBindMem(object, 2 * size, memory, 0, size, 0)); /* beyond the object */
    EXPECT(INVALID_VALUE, cuMulticastBindMem(object, 0, memory, 0, size, 1));
    EXPECT(INVALID_VALUE, cuMulticastBindMem(memory, 0, memory, 0, size, 0)); /* no multicast object */
    EXPECT(INVALID_VALUE, cuMulticastBindMem(0, 0, memory, 0, size, 0));
    OK(cuMulticastBindMem(object, size, memory, 0, size, 0));
    CHECK(free_now() == made);
    /* Bound, memory outlives its handle; unbound, it goes. */
    OK(cuMemRelease(memory));
    CHECK(free_now() == made);
    EXPECT(INVALID_VALUE, cuMulticastUnbind(object, device, 2 * size, size));
    OK(cuMulticastUnbind(object, device, size, size));
    CHECK(free_now() == before);
    /* By address: the mapping is not needed any more once it is bound. */
    CUdeviceptr va = 0, view = 0;
    AccessDesc access = {{1, device}, 3};
    OK(cuMemCreate(&memory, size, &memory_prop, 0));
    OK(cuMemAddressReserve(&va, size, unit, 0, 0));
    OK(cuMemMap(va, size, 0, memory, 0));
    OK(cuMemSetAccess(va, size, &access, 1));
    EXPECT(INVALID_VALUE, cuMulticastBindAddr(object, 0, va + 4, size, 0));
    EXPECT(INVALID_VALUE, cuMulticastBindAddr(object, 0, 0, size, 0));
    OK(cuMulticastBindAddr(object, 0, va, size, 0));
    OK(cuMemUnmap(va, size));
    OK(cuMemRelease(memory));
    CHECK(free_now() <= before - size);
    /* The object has addresses of its own; its end lets go of what is bound. */
    OK(cuMemAddressReserve(&view, prop.size, unit, 0, 0));
    OK(cuMemMap(view, prop.size, 0, object, 0));
    OK(cuMemSetAccess(view, prop.size, &access, 1));
    OK(cuMemRelease(object));
    CHECK(free_now() <= before - size);
    OK(cuMemUnmap(view, prop.size));
    CHECK(free_now() == before);
    EXPECT(INVALID_VALUE, cuMemRelease(object));
    EXPECT(INVALID_VALUE, cuMulticastAddDevice(object, device));
    OK(cuMemAddressFree(va, size));
    OK(cuMemAddressFree(view, prop.size));
    return finish("multicast");
}
