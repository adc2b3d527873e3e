/* Closes descriptors while the GPU is in use, then takes their numbers for other files: closes DRIVER. First all but the
 * standard ones and the driver's (its files' names start with DRIVER): the shim needs none of them, holds none and opens
 * none that stays, so nothing changes. Then the driver's as well: what it makes of that is its affair, and every call
 * returns. */
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
/* Takes 64 numbers for the application's own files. */
static void take_numbers(void)
{
    for (int i = 0; i < 64; i++) open("/dev/null", O_RDWR);
}
static void close_all_but(const char *driver)
{
    char link[64], name[4096];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, name, sizeof name - 1);
        if (length > 0) name[length] = 0;
        if (length <= 0 || strncmp(name, driver, strlen(driver))) close(fd);
    }
}
int main(int argc, char **argv)
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
    close_all_but(argc > 1 ? argv[1] : "/dev/nvidia");
    take_numbers();
    usleep(600000);
    OK(work_a_little());
    OK(work_a_little());
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before);
    OK(cuMemFree_v2(held));
    OK(cuMemGetInfo_v2(&after, &total));
    CHECK(after == before + (64 << 20));
    syscall(SYS_close_range, 3u, ~0u, 0u);
    take_numbers();
    usleep(600000);
    work_a_little();
    for (int fd = 3; fd < 64; fd++) CHECK(fcntl(fd, F_GETFD) >= 0); /* the application's files are open */
    return finish("closes");
}
