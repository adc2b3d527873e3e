/* cuInit before fork: calls in the child return CUDA_ERROR_NOT_INITIALIZED (CUDA C programming guide: the driver
 * cannot be used in a forked child). The child is not charged and its end changes nothing for the parent. */
#include "driver.h"
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
    setup();
    CUdeviceptr p = 0, q = 0;
    size_t before, after, total;
    OK(cuMemAlloc_v2(&p, 32 << 20));
    OK(cuMemGetInfo_v2(&before, &total));
    pid_t child = fork();
    if (child == 0) {
        EXPECT(NOT_INITIALIZED, cuMemAlloc_v2(&q, 1 << 20));
        EXPECT(NOT_INITIALIZED, cuMemGetInfo_v2(&after, &total));
        EXPECT(NOT_INITIALIZED, cuMemFree_v2(p));
        EXPECT(NOT_INITIALIZED, cuInit(0));
        _exit(failures);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before);
    OK(cuMemFree_v2(p));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before + (32 << 20));
    return finish("fork");
}
