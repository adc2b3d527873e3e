/* as_pid PID COMMAND...: COMMAND as a new process of this very number (clone3's set_tid, for root), and waits for it.
 * Status 77 where that is not permitted, 75 while the number is taken. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    pid_t wanted = argc > 2 ? atoi(argv[1]) : 0;
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    int status;
    if (pid < 0) return errno == EEXIST ? 75 : 77;
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execvp(argv[2], argv + 2);
        _exit(76);
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 70;
}
