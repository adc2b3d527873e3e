/* Signals of every kind: signals KIND. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile int seen;
static void jump(int number) { siglongjmp(back, number); }
static void note(int number) { seen += number != 0; }
static int overflow(int depth)
{
    volatile char page[4096];
    page[0] = (char)depth;
    return overflow(depth + 1) + page[0];
}
static void block(int number)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
static int alternate_stack(void)
{
    static char room[65536];
    stack_t stack = {.ss_sp = room, .ss_size = sizeof room};
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, NULL);
    sigaction(SIGSEGV, &action, NULL);
    return sigsetjmp(back, 1) == SIGSEGV ? 0 : overflow(0);
}
static int waited_for(void)
{
    sigset_t set;
    int number = 0;
    struct signalfd_siginfo info;
    block(SIGUSR1);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    kill(getpid(), SIGUSR1);
    sigwait(&set, &number);
    int file = signalfd(-1, &set, 0);
    kill(getpid(), SIGUSR1);
    return read(file, &info, sizeof info) != sizeof info || info.ssi_signo != (unsigned)number;
}
static int timers(void)
{
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    signal(SIGALRM, note);
    setitimer(ITIMER_REAL, &often, NULL);
    while (seen < 20) pause();
    setitimer(ITIMER_REAL, &never, NULL);
    return 0;
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    int failed = 1;
    if (!strcmp(kind, "stack")) failed = alternate_stack();
    if (!strcmp(kind, "wait")) failed = waited_for();
    if (!strcmp(kind, "timers")) failed = timers();
    if (!strcmp(kind, "term")) raise(SIGTERM);
    if (!strcmp(kind, "abort")) abort();
    if (!strcmp(kind, "fault")) *(volatile int *)8 = 1;
    if (!strcmp(kind, "jump")) {
        signal(SIGUSR2, jump);
        failed = sigsetjmp(back, 1) ? 0 : raise(SIGUSR2);
    }
    printf("%s\n", failed ? "failed" : "ok");
    return failed;
}
