/* Closes every descriptor but the standard ones while the GPU is in use, then takes their numbers for other files: closes:
 * the shim needs none of them, holds none and opens none that stays; what the driver makes of losing its own is
 * the driver's affair, and the same with and without a shim. Prints the codes. */
#include "driver.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}
static CUresult work_a_little(void)
{
    CUdeviceptr p = 0;
    size_t left, total;
    CUresult code = cuMemAlloc_v2(&p, 1 << 20);
    if (!code) code = launch(spin, NULL, 100000);
    if (!code) code = cuCtxSynchronize();
    if (!code) code = cuMemFree_v2(p);
    if (!code) code = cuMemGetInfo_v2(&left, &total);
    return code;
}
int main(void)
{
    CUdeviceptr held;
    size_t before, after, total;
    setup();
    OK(cuMemAlloc_v2(&held, 64 << 20));
    OK(work_a_little());
    usleep(600000); /* the shim has looked around by now */
    OK(work_a_little());
    int open_before = descriptors();
    for (int i = 0; i < 20; i++) OK(work_a_little());
    usleep(600000);
    OK(work_a_little());
    CHECK(descriptors() == open_before);
    OK(cuMemGetInfo_v2(&before, &total));
    syscall(SYS_close_range, 3u, ~0u, 0u);
    for (int i = 0; i < 64; i++) open("/dev/null", O_RDWR);
    usleep(600000);
    CUresult first = work_a_little(), second = work_a_little();
    printf("after closing %d %d\n", first, second);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(first || after == before);
    for (int fd = 3; fd < 64; fd++) CHECK(fcntl(fd, F_GETFD) >= 0); /* the application's files are open */
    CHECK(cuMemFree_v2(held) == SUCCESS);
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(first || after == before + (64 << 20));
    return finish("closes");
}
