/* What outlives a process that is killed, and for how long: its locks, its row in NVML's list, its memory; memory that a
 * forked child keeps, and memory that another process opened by an IPC handle. docs/hardware.md, "end of a process", "IPC handles".
 *   deaths hold    instead: allocates, says "holding" and waits to be killed, as a neighbour for others */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (void *, CUdeviceptr))                                               \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))
typedef struct { char bytes[64]; } IpcHandle;
#include "nvml.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#define BYTES (512 * MIB)

static char lock_path[] = "/dev/shm/vcuda-deaths-XXXXXX";
/* A child without exec that waits to be killed, or for 20 s. */
static pid_t grandchild(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        for (;;) pause();
    }
    return pid;
}
/* Allocates, locks the file, passes the handle on and waits to be killed. */
static void child(int out)
{
    CUdeviceptr p;
    IpcHandle handle;
    setup();
    OK(cuMemAlloc_v2(&p, BYTES));
    int code = cuIpcGetMemHandle(&handle, p), fd = open(lock_path, O_RDWR);
    if (failures || flock(fd, LOCK_EX) || write(out, &code, sizeof code) < 0 || write(out, &handle, sizeof handle) < 0) exit(1);
    for (;;) pause();
}
static pid_t begin(int *code, IpcHandle *handle)
{
    int ends[2];
    if (pipe(ends)) exit(1);
    pid_t pid = fork();
    if (pid == 0) child(ends[1]);
    close(ends[1]);
    if (read(ends[0], code, sizeof *code) != sizeof *code || read(ends[0], handle, sizeof *handle) != sizeof *handle) {
        int status = 0;
        waitpid(pid, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip("no device");
        printf("FAIL the child could not begin\n");
        exit(1);
    }
    close(ends[0]);
    return pid;
}
static int is_listed(pid_t pid)
{
    static NvmlProcess all[512];
    unsigned count = 512;
    if (nvmlDeviceGetComputeRunningProcesses_v3(nvml_device, &count, all)) return -1;
    for (unsigned i = 0; i < count; i++)
        if (all[i].pid == (unsigned)pid) return 1;
    return 0;
}
static void report_after(const char *name, double us)
{
    if (us < 0) not_measured(name, "not-within-3s");
    else report(name, us, "us");
}
static void one_death(void)
{
    int code, lock = open(lock_path, O_RDWR);
    IpcHandle handle;
    double before = (double)gpu_used(), ended = -1, lock_free = -1, unlisted = -1, memory = -1;
    pid_t pid = begin(&code, &handle);
    report("alive_used", (double)gpu_used() - before, "bytes");
    report("alive_listed", is_listed(pid), "boolean");
    double killed = now_us();
    kill(pid, SIGKILL);
    while (now_us() - killed < 3e6 && (ended < 0 || lock_free < 0 || unlisted < 0 || memory < 0)) {
        if (lock_free < 0 && !flock(lock, LOCK_EX | LOCK_NB)) lock_free = now_us() - killed;
        if (memory < 0 && (double)gpu_used() - before < (double)BYTES / 2) memory = now_us() - killed;
        if (unlisted < 0 && is_listed(pid) == 0) unlisted = now_us() - killed;
        if (ended < 0 && waitpid(pid, NULL, WNOHANG) == pid) ended = now_us() - killed;
    }
    flock(lock, LOCK_UN);
    report_after("killed_ended", ended);
    report_after("killed_lock_free", lock_free);
    report_after("killed_unlisted", unlisted);
    report_after("killed_memory_back", memory);
}
static void opened_by_another(void)
{
    int code;
    IpcHandle handle;
    CUdeviceptr opened;
    pid_t pid = begin(&code, &handle);
    if (code) {
        report("ipc_get", code, "CUresult");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return;
    }
    setup();
    code = cuIpcOpenMemHandle_v2(&opened, handle, 1);
    report("ipc_open", code, "CUresult");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    sleep(1);
    double maker_dead = (double)gpu_used();
    if (!code) {
        report("ipc_write_after_makers_death", cuMemsetD8_v2(opened, 1, BYTES), "CUresult");
        OK(cuCtxSynchronize());
        OK(cuIpcCloseMemHandle(opened));
        usleep(200000);
        report("ipc_held_after_makers_death", maker_dead - (double)gpu_used(), "bytes");
    }
}
/* A process is killed that has a child: whether its memory stays, and whether it comes back with the child's end. */
static void kept_by_a_child(void)
{
    int ends[2];
    pid_t of_child = 0;
    CUdeviceptr p;
    double before = (double)gpu_used(), memory = -1;
    if (pipe(ends)) exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        setup();
        OK(cuMemAlloc_v2(&p, BYTES));
        of_child = grandchild();
        if (write(ends[1], &of_child, sizeof of_child) < 0) exit(1);
        for (;;) pause();
    }
    close(ends[1]);
    if (read(ends[0], &of_child, sizeof of_child) != sizeof of_child) exit(1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    sleep(1);
    report("child_keeps_memory", (double)gpu_used() - before > (double)BYTES / 2, "boolean");
    double killed = now_us();
    kill(of_child, SIGKILL);
    while (now_us() - killed < 3e6 && memory < 0)
        if ((double)gpu_used() - before < (double)BYTES / 2) memory = now_us() - killed;
    report_after("killed_child_memory_back", memory);
}
static int hold(void)
{
    CUdeviceptr p;
    setup();
    OK(cuMemAlloc_v2(&p, BYTES));
    puts("holding");
    fflush(stdout);
    pause();
    return failures != 0;
}
int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "hold")) return hold();
    int made = mkstemp(lock_path);
    if (made < 0) skip("no /dev/shm");
    nvml_open();
    one_death();
    kept_by_a_child();
    opened_by_another();
    unlink(lock_path);
    return failures != 0;
}
