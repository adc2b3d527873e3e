/* Named functions fail when the machine is told so; tests/tests/interposition/conformance.rs has the configuration. A call that fails
 * does nothing: no output is written, nothing is taken. */
#include "driver.h"
int main(void)
{
    setup();
    CUdeviceptr one = 0, two = 0, three = 0;
    CUarray array = NULL;
    ArrayDescriptor shape = {64, 64, 0x20, 1};
    AllocationProp prop = {.type = 1, .location = {1, device}};
    CUmemHandle handle = 0;
    size_t before, after, total;
    OK(cuMemAlloc_v2(&one, 4096));
    OK(cuMemGetInfo_v2(&before, &total));
    EXPECT(OUT_OF_MEMORY, cuMemAlloc_v2(&two, 4096)); /* nth = 2 */
    CHECK(two == 0);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before);
    OK(cuMemAlloc_v2(&three, 4096));
    for (int i = 1; i <= 6; i++) { /* every = 3, code = 719 */
        EXPECT(i % 3 ? SUCCESS : 719, cuArrayCreate_v2(&array, &shape));
        if (i % 3) OK(cuArrayDestroy(array));
    }
    OK(cuMemCreate(&handle, 2 << 20, &prop, 0));
    EXPECT(ILLEGAL_STATE, cuMemRelease(handle)); /* nth = 1, code = 401 */
    OK(cuMemRelease(handle));
    OK(cuMemFree_v2(one));
    OK(cuMemFree_v2(three));
    return finish("sim_faults");
}
