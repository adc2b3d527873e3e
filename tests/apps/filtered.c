/* A program that allows itself few system calls once it has used the GPU; any other kills it. Allowed are those of ALLOWED, from the
 * command line of the compiler ("SYS_read, SYS_write"), and those of BARE, which this program and the simulated driver need besides.
 * Then it allocates until it is refused, launches, exports, frees, starts a thread, waits and ends. */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, (void *, CUmemHandle, int, unsigned long long)) \
    X(cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070,                                             \
      (void *, CUdeviceptr, size_t, int, unsigned long long))
#include "driver.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
enum { MIB = 1 << 20, MOST = 4096 };
static const int BARE[] = {SYS_exit_group, SYS_fchmod,  SYS_ftruncate, SYS_mkdir,
                           SYS_mknodat,    SYS_pread64, SYS_pwrite64,  SYS_unlinkat};
static const int NAMED[] = {ALLOWED};
static struct sock_filter rules[160];
static unsigned short length;
static void add(const int *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        rules[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
}
/* For all threads. */
static int allow_few(void)
{
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    add(BARE, sizeof BARE / sizeof *BARE);
    add(NAMED, sizeof NAMED / sizeof *NAMED);
    rules[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog whole = {length, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &whole) == 0;
}
static void fill(void)
{
    static CUdeviceptr pieces[MOST];
    size_t free_bytes, total_bytes;
    int count = 0;
    CUresult code;
    while (count < MOST && (code = cuMemAlloc_v2(&pieces[count], 64 * MIB)) == SUCCESS) count++;
    CHECK(count > 0 && code == OUT_OF_MEMORY);
    OK(cuMemGetInfo_v2(&free_bytes, &total_bytes));
    CHECK(free_bytes < 64 * MIB);
    while (count) OK(cuMemFree_v2(pieces[--count]));
}
static void *use(void *unused)
{
    CUstream stream;
    CUmemoryPool pool;
    CUdeviceptr piece;
    OK(cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    for (int i = 0; i < 300; i++) OK(launch(spin, stream, 1000000));
    OK(cuMemAllocAsync(&piece, MIB, stream));
    OK(cuMemFreeAsync(piece, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy_v2(stream));
    return NULL;
}
static void export(void)
{
    static const AllocationProp PROP = {.type = 1, .requested_handle_types = 1, .location = {1, 0}};
    CUmemHandle handle;
    CUdeviceptr piece;
    int file = -1, range = -1;
    OK(cuMemCreate(&handle, 2 * MIB, &PROP, 0));
    OK(cuMemExportToShareableHandle(&file, handle, 1, 0));
    OK(cuMemRelease(handle));
    OK(cuMemAlloc_v2(&piece, 2 * MIB));
    OK(cuMemGetHandleForAddressRange(&range, piece, 2 * MIB, 1, 0));
    OK(cuMemFree_v2(piece));
    close(file);
    close(range);
}
int main(void)
{
    pthread_t thread;
    setup();
    use(NULL);
    CHECK(allow_few());
    fill();
    use(NULL);
    CHECK(!pthread_create(&thread, NULL, use, NULL) && !pthread_join(thread, NULL));
    export();
    poll(NULL, 0, 2000); /* the shim looks around meanwhile */
    fill();
    return finish("filtered");
}
