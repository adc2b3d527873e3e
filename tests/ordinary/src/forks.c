/* Processes of every kind: forks KIND. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>

extern char **environ;
static char stack[65536] __attribute__((aligned(16)));
static int in_constructor = -1;
__attribute__((constructor)) static void construct(void)
{
    int status = 0;
    pid_t child = fork();
    if (!child) _exit(3);
    if (waitpid(child, &status, 0) == child) in_constructor = WEXITSTATUS(status);
}
static int shared;
static int child_body(void *unused)
{
    shared = unused == NULL;
    return 4;
}
static int end_of(pid_t child)
{
    int status = 0;
    return waitpid(child, &status, 0) == child ? status : -1;
}
static void fork_in_handler(int number)
{
    pid_t child = fork();
    if (!child) _exit(number);
    shared = WEXITSTATUS(end_of(child));
}
static int counts[3];
static void prepare(void) { counts[0]++; }
static void parent(void) { counts[1]++; }
static void child(void) { counts[2]++; }
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "";
    char *command[] = {"sh", "-c", "exit 6", NULL};
    pid_t pid = -1;
    if (!strcmp(kind, "constructor")) return in_constructor;
    if (!strcmp(kind, "vfork")) {
        if (!(pid = vfork())) execve("/bin/sh", command, environ);
        printf("%d\n", WEXITSTATUS(end_of(pid)));
        if (!(pid = vfork())) _exit(2);
        printf("%d\n", WEXITSTATUS(end_of(pid)));
    }
    if (!strcmp(kind, "clone")) {
        pid = clone(child_body, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
        printf("%d %d\n", WEXITSTATUS(end_of(pid)), shared);
        pid = clone(child_body, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        printf("%d\n", WEXITSTATUS(end_of(pid)));
        pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (!pid) execve("/bin/sh", command, environ);
        printf("%d\n", WEXITSTATUS(end_of(pid)));
    }
    if (!strcmp(kind, "spawn")) {
        for (int i = 0; i < 10; i++) {
            posix_spawn(&pid, "/bin/sh", NULL, NULL, command, environ);
            printf("%d\n", WEXITSTATUS(end_of(pid)));
        }
        printf("%d %d\n", WEXITSTATUS(system("exit 5")), pclose(popen("exit 0", "r")));
    }
    if (!strcmp(kind, "handler")) {
        signal(SIGUSR1, fork_in_handler);
        raise(SIGUSR1);
        printf("%d\n", shared == SIGUSR1);
    }
    if (!strcmp(kind, "atfork")) {
        pthread_atfork(prepare, parent, child);
        if (!(pid = fork())) _exit(counts[0] * 10 + counts[2]);
        printf("%d %d %d\n", WEXITSTATUS(end_of(pid)), counts[0], counts[1]);
    }
    if (!strcmp(kind, "deep")) {
        int depth = 0;
        while (depth < 20 && (pid = fork()) == 0) depth++;
        if (pid > 0) return depth + WEXITSTATUS(end_of(pid)) * (depth == 0);
        return 1;
    }
    if (!strcmp(kind, "daemon")) return daemon(1, 1);
    return 0;
}
