/* For LD_PRELOAD: CLOCK_REALTIME is off by as many seconds as stand in the file TEST_CLOCK_SHIFT, read at each call. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *time)
{
    long result = syscall(SYS_clock_gettime, id, time);
    if (result == 0 && id == CLOCK_REALTIME) {
        char text[32] = "";
        int file = open(getenv("TEST_CLOCK_SHIFT"), O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atoll(text);
            close(file);
        }
    }
    return (int)result;
}
