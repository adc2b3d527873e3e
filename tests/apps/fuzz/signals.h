/* Signal handlers that call the driver while a launch of their thread waits for its share of the GPU's time, and that leave it by a
 * jump. Such a launch sleeps on a word of the tenant's `usage`. Elsewhere the thread may have a lock of the driver or of the C library,
 * and no program may call either. */
#ifndef VCUDA_TESTS_FUZZ_SIGNALS_H
#define VCUDA_TESTS_FUZZ_SIGNALS_H
#include "../usage.h"
#include "own.h"
enum { SIGNAL_US = 2000 };
static __thread Thread *self;

/* Whether the signal has ended a sleep on a word of `usage` (futex(2)). */
static int was_asleep(const ucontext_t *interrupted)
{
#ifdef __x86_64__
    const greg_t *registers = interrupted->uc_mcontext.gregs;
    unsigned long word = (unsigned long)registers[REG_RDI];
    return registers[REG_RAX] == -EINTR && is_of_usage(word);
#else
    (void)interrupted; /* the answer has replaced the address */
    return 0;
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
    find_usage();
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    for (; page->command < END; usleep(SIGNAL_US))
        for (Thread *t = threads; t < threads + THREADS; t++) {
            unsigned long calls = t->calls;
            if (calls % 2 && calls == t->calls_before) pthread_kill(t->id, SIGUSR1);
            t->calls_before = calls;
        }
}
#endif
