/* Signal handlers that call the driver while a launch of their thread waits for its share of the GPU's time, and that leave it by a
 * jump. Elsewhere the thread may have a lock of the driver or of the C library, and no program may call either. */
#ifndef VCUDA_TESTS_FUZZ_SIGNALS_H
#define VCUDA_TESTS_FUZZ_SIGNALS_H
#include "own.h"
enum { SIGNAL_US = 2000 };
static __thread Thread *self;

/* Whether the signal has ended a sleep of the kernel's. */
static int was_asleep(const ucontext_t *interrupted)
{
#ifdef __x86_64__
    return interrupted->uc_mcontext.gregs[REG_RAX] == -EINTR;
#else
    return (long)interrupted->uc_mcontext.regs[0] == -EINTR;
#endif
}
static void on_signal(int number, siginfo_t *info, void *interrupted)
{
    Thread *t = self;
    int error = errno;
    (void)number, (void)info;
    if (!t || t->calls % 2 == 0 || !was_asleep(interrupted)) return;
    Held *h = &t->handler_held[draw(&t->handler_seed) % HANDLER_HELD];
    if (h->kind) {
        INSIST(cuMemFree_v2(h->address));
        *h = (Held){0};
    } else if (SERVED(cuMemAlloc_v2(&h->address, some_bytes(&t->handler_seed)))) {
        h->kind = LINEAR;
    }
    page->signals++;
    if (one_in(&t->handler_seed, 2)) siglongjmp(t->top, 1);
    errno = error;
}
/* Signals threads that are in the same launch at two looks: they wait there. */
static void signal_until_the_end(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    for (; page->command < END; usleep(SIGNAL_US))
        for (Thread *t = threads; t < threads + THREADS; t++) {
            unsigned long calls = t->calls;
            if (calls % 2 && calls == t->calls_before) pthread_kill(t->id, SIGUSR1);
            t->calls_before = calls;
        }
}
#endif
