/* `cost` with a clock of its own, so that instructions repeat: 400 ns pass with each look of the first thread, and a sleep takes
 * its whole time at once. A program that valgrind slows down else pauses between its launches, by turns more or less. The shim
 * sees that the clock is not the C library's and reads it at each launch (shim/src/compute/clock.rs): how often it does
 * otherwise depends on the processor. */
#include "cost.c"
#include <dlfcn.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>

static const uint64_t START_NS = 1000000000000000;
static uint64_t passed_ns;
static char *first;
static __thread char here;
__attribute__((constructor)) static void begin(void) { first = &here; }

int clock_gettime(clockid_t clock, struct timespec *t)
{
    uint64_t ns;
    (void)clock;
    if (first == &here) __atomic_add_fetch(&passed_ns, 400, __ATOMIC_RELAXED);
    ns = __atomic_load_n(&passed_ns, __ATOMIC_RELAXED);
    ns += START_NS;
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return 0;
}

/* The shim sleeps by futex(2): for a time, or until a time of the clock above. */
long syscall(long number, ...)
{
    static long (*real)(long, ...);
    static const struct timespec moment = { 0, 1000 };
    long of[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) of[i] = va_arg(list, long);
    va_end(list);
    if (!real) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_futex && first == &here && of[3] && (of[1] == FUTEX_WAIT || of[1] == FUTEX_WAIT_BITSET)) {
        const struct timespec *t = (const struct timespec *)of[3];
        uint64_t ns = t->tv_sec * 1000000000 + t->tv_nsec, until = of[1] == FUTEX_WAIT ? passed_ns + ns : ns - START_NS;
        if (until > passed_ns) passed_ns = until;
        of[1] = FUTEX_WAIT;
        of[3] = (long)&moment;
    }
    return real(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}
