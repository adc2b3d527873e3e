/* Memory that descriptors alone keep: given_away HOW WHAT BYTES TIMES [FOLDER].
 * WHAT is file (cuMemExportToShareableHandle) or range (cuMemGetHandleForAddressRange of cuMemAlloc memory). HOW:
 *   self      this process makes TIMES pieces of BYTES, frees each, and keeps its descriptor
 *   churn     so, while three threads lock and unlock files of their own without pause
 *   chroot    so, and from the second piece on within the empty FOLDER as its root
 *   children  for each piece a process that makes it, passes its descriptor on, and ends
 * Prints "kept N", the pieces that it got. At the next line on stdin it closes the descriptors, and asks for one piece
 * more, for a second at most: "passed". */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,                                             \
      (void *, CUdeviceptr, size_t, int, unsigned long long))
#include "driver.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { MOST = 64 };
static int files[MOST], kept, is_range;
static size_t bytes;
/* A piece of memory that its descriptor alone keeps; -1 if it was refused. */
static int give_away(void)
{
    static const AllocationProp PROP = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
    int file = -1;
    CUresult code;
    if (is_range) {
        CUdeviceptr at;
        if ((code = cuMemAlloc_v2(&at, bytes)) == SUCCESS) {
            OK(cuMemGetHandleForAddressRange(&file, at, bytes, 1, 0));
            OK(cuMemFree_v2(at));
        }
    } else {
        CUmemHandle handle;
        if ((code = cuMemCreate(&handle, bytes, &PROP, 0)) == SUCCESS) {
            OK(cuMemExportToShareableHandle(&file, handle, 1, 0));
            OK(cuMemRelease(handle));
        }
    }
    CHECK(code == SUCCESS || code == OUT_OF_MEMORY);
    return file;
}
/* One descriptor over a socket; -1: none came. */
static void pass(int socket, int file)
{
    char byte = file >= 0;
    struct iovec part = {&byte, 1};
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        message.msg_control = control.room;
        message.msg_controllen = sizeof control.room;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    }
    CHECK(sendmsg(socket, &message, 0) == 1);
}
static int receive(int socket)
{
    char byte;
    int file = -1;
    struct iovec part = {&byte, 1};
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } control = {{0}};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    CHECK(recvmsg(socket, &message, 0) == 1);
    if (message.msg_controllen) memcpy(&file, CMSG_DATA(&control.header), sizeof file);
    return file;
}
static int from_a_child(void)
{
    int ends[2], file, status;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
    pid_t child = fork();
    if (!child) {
        setup();
        pass(ends[1], give_away());
        _exit(failures);
    }
    file = receive(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    close(ends[0]);
    close(ends[1]);
    return file;
}
static void *churn(void *unused)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    FILE *own = tmpfile();
    for (long i = 0;; i++) {
        lock.l_type = i & 1 ? F_UNLCK : F_RDLCK;
        lock.l_start = i / 2 % 512;
        fcntl(fileno(own), F_OFD_SETLK, &lock);
    }
    return NULL;
}
int main(int argc, char **argv)
{
    int is_children = !strcmp(argv[1], "children"), times = atoi(argv[4]);
    char line[16];
    is_range = !strcmp(argv[2], "range");
    bytes = strtoull(argv[3], NULL, 0);
    if (!is_children) setup();
    for (int i = 0; i < 3 && !strcmp(argv[1], "churn"); i++) {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, churn, NULL));
    }
    for (int i = 0; i < times && kept < MOST && !failures; i++) {
        if (i == 1 && !strcmp(argv[1], "chroot")) CHECK(!chroot(argv[5]) && !chdir("/"));
        int file = is_children ? from_a_child() : give_away();
        if (file >= 0) files[kept++] = file;
    }
    printf("kept %d\n", kept);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) failures++;
    for (int i = 0; i < kept; i++) close(files[i]);
    for (int i = 0; i < 100; i++) {
        int file = is_children ? from_a_child() : give_away();
        if (file >= 0) return finish("given_away");
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    printf("FAIL the memory of closed descriptors did not come back\n");
    return 1;
}
