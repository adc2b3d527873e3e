/* Filters of system calls: filters KIND. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static int filter(unsigned otherwise, const int *allowed, unsigned count)
{
    struct sock_filter program[40];
    unsigned length = 0;
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog whole = {.len = (unsigned short)length, .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole);
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    static const int few[] = {SYS_write, SYS_exit_group, SYS_exit};
    /* What a program needs to start another, and no more than the loader needs. */
    static const int start[] = {SYS_execve,    SYS_brk,    SYS_mmap,     SYS_munmap,   SYS_mprotect,    SYS_openat,
                                SYS_read,      SYS_close,  SYS_newfstatat, SYS_pread64, SYS_set_tid_address,
                                SYS_set_robust_list, SYS_prlimit64, SYS_write, SYS_exit_group, SYS_getrandom, SYS_fstat};
    if (!strcmp(kind, "strict")) {
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        if (write(1, "strict\n", 7) != 7) return 1;
        syscall(SYS_exit, 3);
    }
    if (!strcmp(kind, "few") && !filter(SECCOMP_RET_KILL_PROCESS, few, 3)) {
        if (write(1, "few\n", 4) != 4) return 1;
        _exit(4);
    }
    if (!strcmp(kind, "killed") && !filter(SECCOMP_RET_KILL_PROCESS, few, 3)) getppid();
    if (!strcmp(kind, "start") && !filter(SECCOMP_RET_ERRNO | EPERM, start, sizeof start / sizeof *start))
        execl("/bin/echo", "echo", "started", NULL);
    return 9;
}
