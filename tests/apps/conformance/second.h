/* A second process for programs about sharing: this program again, with its standard input and output as two ends of a
 * socket. `say` and `hear` carry bytes, and a file descriptor where one is given. Include after driver.h. */
#ifndef VCUDA_TESTS_SECOND_H
#define VCUDA_TESTS_SECOND_H
#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int other = -1; /* the socket */
static pid_t second = -1;

static inline void say(const void *bytes, size_t length, int fd)
{
    struct iovec part = {(void *)bytes, length};
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    CHECK(sendmsg(other, &message, MSG_NOSIGNAL) == (ssize_t)length);
}

/* Gives the descriptor that came along, or -1. Ends the program where the other one has ended. */
static inline int hear(void *bytes, size_t length)
{
    struct iovec part = {bytes, length};
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    ssize_t got = recvmsg(other, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    if (got != (ssize_t)length) {
        printf("FAIL the other process has ended\n");
        exit(1);
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header && header->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

/* A step that both take: neither goes on before the other is there. */
static inline void meet(void)
{
    char byte = 'm';
    say(&byte, 1, -1);
    hear(&byte, 1);
    CHECK(byte == 'm');
}

/* Starts this program again as `role`; CUDA must not have been used before a fork, hence the exec. */
static inline void start_second(const char *program, const char *role)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) exit(1);
    fflush(stdout);
    second = fork();
    if (second == 0) {
        dup2(ends[1], 0);
        if (ends[0] > 0) close(ends[0]);
        execl("/proc/self/exe", program, role, (char *)NULL);
        _exit(1);
    }
    close(ends[1]);
    other = ends[0];
}

/* In the second process. */
static inline void be_second(void) { other = 0; }

static inline void end_second(void)
{
    int status = -1;
    CHECK(waitpid(second, &status, 0) == second);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close(other);
}

static inline void kill_second(void)
{
    int status = -1;
    CHECK(kill(second, SIGKILL) == 0);
    CHECK(waitpid(second, &status, 0) == second);
    close(other);
}

static inline size_t free_bytes(void)
{
    size_t free_now = 0, total = 0;
    OK(cuMemGetInfo_v2(&free_now, &total));
    return free_now;
}

/* What a killed process held comes back soon, not at once: not on a real driver, nor with a container's count. */
static inline int free_becomes(size_t bytes)
{
    for (int i = 0; i < 2000 && free_bytes() != bytes; i++) usleep(1000);
    return free_bytes() == bytes;
}
#endif
