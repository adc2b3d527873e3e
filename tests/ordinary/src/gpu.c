/* A program that uses a GPU where little is as usual: gpu KIND. It says the same bare and as a tenant. */
#include "driver.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_t main_thread;
static int strays;
static volatile int handled;
static void use_gpu(int launches)
{
    CUdeviceptr p = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&p, 1 << 20));
    for (int i = 0; i < launches; i++) OK(launch(spin, NULL, 50000));
    OK(cuMemsetD8_v2(p, 7, 1 << 20));
    OK(cuCtxSynchronize());
    OK(cuMemFree_v2(p));
}
static void *body(void *argument)
{
    use_gpu((int)(size_t)argument);
    return NULL;
}
static void handle(int number)
{
    handled += number != 0;
    strays += !pthread_equal(pthread_self(), main_thread);
}
static int fill_descriptors(void)
{
    struct rlimit few = {40, 40};
    setrlimit(RLIMIT_NOFILE, &few);
    while (open("/dev/null", O_RDONLY) >= 0) {}
    return errno == EMFILE;
}
/* As a sandbox that knows few system calls. */
static int without_calls(void)
{
    static const unsigned refused[] = {SYS_process_vm_readv, SYS_get_robust_list, SYS_pidfd_open, SYS_statx, SYS_socket,
                                       SYS_prctl, SYS_madvise, SYS_membarrier};
    struct sock_filter program[24] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    unsigned short length = 1;
    for (unsigned i = 0; i < sizeof refused / sizeof *refused; i++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog whole = {length, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole) == 0;
}
static void alarms(void)
{
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 20; i++) use_gpu(20);
    while (handled < 10) usleep(1000);
    setitimer(ITIMER_REAL, &never, NULL);
    CHECK(strays == 0); /* no handler of the application's on a thread that is not its own */
}
static void threads(size_t stack)
{
    pthread_attr_t attributes;
    pthread_t thread[4];
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, stack);
    for (size_t i = 0; i < 4; i++) CHECK(!pthread_create(&thread[i], &attributes, body, (void *)(i * 20)));
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
}
static int before(const char *kind)
{
    if (!strcmp(kind, "closed")) syscall(SYS_close_range, 3u, ~0u, 0u);
    if (!strcmp(kind, "silent")) close(0), close(1), close(2);
    if (!strcmp(kind, "blocked")) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
    }
    return strcmp(kind, "sandboxed") || without_calls();
}
static void during(const char *kind)
{
    char folder[] = "/tmp/ordinary-XXXXXX";
    if (!strcmp(kind, "closes")) syscall(SYS_close_range, 3u, ~0u, 0u);
    if (!strcmp(kind, "fills")) CHECK(fill_descriptors());
    if (!strcmp(kind, "filtered")) CHECK(without_calls());
    if (!strcmp(kind, "alarms")) alarms();
    if (!strcmp(kind, "threads")) threads(1 << 20);
    if (!strcmp(kind, "small")) threads(128 << 10);
    if (!strcmp(kind, "nobody")) CHECK(!setresgid(65534, 65534, 65534) && !setresuid(65534, 65534, 65534));
    if (!strcmp(kind, "chroot")) CHECK(mkdtemp(folder) && !chroot(folder) && !chdir("/"));
    if (!strcmp(kind, "undumpable")) prctl(PR_SET_DUMPABLE, 0);
}
static int end(const char *kind)
{
    char *command[] = {"echo", "executed", NULL};
    int status = 0;
    pthread_t thread;
    fflush(stdout);
    if (!strcmp(kind, "execs")) return execv("/bin/echo", command);
    if (!strcmp(kind, "term")) return raise(SIGTERM);
    if (!strcmp(kind, "kill")) return raise(SIGKILL);
    if (!strcmp(kind, "abort")) abort();
    if (!strcmp(kind, "quick")) quick_exit(4);
    if (!strcmp(kind, "at once")) _exit(5);
    if (!strcmp(kind, "forks")) {
        pid_t child = fork();
        if (!child) _exit(6);
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    if (!strcmp(kind, "other")) {
        pthread_create(&thread, NULL, (void *(*)(void *))exit, (void *)7);
        pthread_join(thread, NULL);
    }
    return 0;
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "work";
    main_thread = pthread_self();
    CHECK(before(kind));
    setup();
    use_gpu(50);
    during(kind);
    use_gpu(50);
    usleep(300000); /* the shim looks around meanwhile */
    use_gpu(50);
    /* Its output would go into the driver's file that has the number 1 now. */
    if (!strcmp(kind, "silent")) return failures;
    return finish(kind) ? 1 : end(kind);
}
