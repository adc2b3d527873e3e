/* Memory that only a descriptor holds: what kind of file it is, whether it can be opened again and locked, and what comes
 * first when the last descriptor is closed, the end of the lock or the memory. docs/hardware.md, "exported descriptors". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long))
#include "nvml.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif
#define BYTES (256 * MIB)

static struct flock range(short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0x5643554441, .l_len = 1};
    return lock;
}
/* 1: another process's lock is there, 0: none, -1: the question failed. */
static int is_locked(int asker)
{
    struct flock lock = range(F_WRLCK);
    return fcntl(asker, F_OFD_GETLK, &lock) ? -1 : lock.l_type != F_UNLCK;
}
static int export_memory(void)
{
    AllocationProp prop = {.type = 1, .requested_handle_types = 1, .location = {1, device}};
    CUmemHandle handle;
    int fd = -1;
    CUresult code = cuMemCreate(&handle, BYTES, &prop, 0);
    if (code == SUCCESS) code = cuMemExportToShareableHandle(&fd, handle, 1, 0);
    report("export", code, "CUresult");
    if (code) exit(code == NOT_SUPPORTED ? 77 : 1);
    OK(cuMemRelease(handle));
    return fd;
}
int main(void)
{
    char path[64], target[256] = "";
    struct stat file;
    nvml_open();
    setup();
    usleep(300000); /* what ended before has been given back */
    double before = (double)gpu_used();
    int fd = export_memory();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    CHECK(readlink(path, target, sizeof target - 1) > 0);
    CHECK(fstat(fd, &file) == 0);
    report("is_character_device", S_ISCHR(file.st_mode), "boolean");
    report("device_major", major(file.st_rdev), "number");
    printf("target - %s\n", target);
    report("held_by_descriptor", (double)gpu_used() - before, "bytes");
    struct flock lock = range(F_RDLCK);
    report("lock_errno", fcntl(fd, F_OFD_SETLK, &lock) ? errno : 0, "errno");
    int asker = open(path, O_RDWR | O_CLOEXEC);
    report("reopen_errno", asker < 0 ? errno : 0, "errno");
    if (asker < 0) asker = open(path, O_RDONLY | O_CLOEXEC);
    if (asker >= 0) {
        report("seen_locked", is_locked(asker), "boolean");
        int copy = dup(fd);
        close(fd);
        report("seen_locked_by_duplicate", is_locked(asker), "boolean");
        fd = copy;
    }
    report("held_by_duplicate", (double)gpu_used() - before, "bytes");
    double closing = now_us(), lock_gone = -1, memory_gone = -1;
    close(fd);
    double closed = now_us();
    while (now_us() - closing < 3e6 && (lock_gone < 0 || memory_gone < 0)) {
        if (lock_gone < 0 && (asker < 0 || is_locked(asker) == 0)) lock_gone = now_us() - closing;
        if (memory_gone < 0 && (double)gpu_used() - before < (double)BYTES / 2) memory_gone = now_us() - closing;
    }
    report("close_took", closed - closing, "us");
    if (lock_gone < 0) not_measured("lock_gone_after_close", "not-within-3s");
    else report("lock_gone_after_close", lock_gone, "us");
    if (memory_gone < 0) not_measured("memory_gone_after_close", "not-within-3s");
    else report("memory_gone_after_close", memory_gone, "us");
    return failures != 0;
}
