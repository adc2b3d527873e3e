/* Does what each line on stdin says and answers with a line:
 *   BYTES         allocates so much and frees it at once: the status
 *   free          what cuMemGetInfo says is free (bytes)
 *   export BYTES  allocates so much for other processes: its IPC handle in hexadecimal, or "refused"
 *   drop          frees that: the status
 *   open HANDLE   opens what another process has exported: the status
 *   close         closes that: the status
 *   import PID FD imports what that process has exported as a descriptor: the status
 *   release       releases that: the status */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (unsigned char *, CUdeviceptr))                                      \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))                                                   \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, (CUmemHandle *, void *, int))
typedef struct { unsigned char bytes[64]; } IpcHandle;
#include "driver.h"
#include <sys/syscall.h>
#include <unistd.h>

static CUresult import(int process, int file, CUmemHandle *handle)
{
    int of = syscall(SYS_pidfd_open, process, 0);
    int own = syscall(SYS_pidfd_getfd, of, file, 0);
    CUresult code = cuMemImportFromShareableHandle(handle, (void *)(intptr_t)own, 1 /* a file descriptor */);
    close(own);
    close(of);
    return code;
}

int main(void)
{
    char line[256];
    CUdeviceptr exported = 0, opened = 0;
    CUmemHandle imported = 0;
    int process, file;
    setup();
    printf("started\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        if (!strcmp(line, "free\n")) {
            size_t free_bytes = 0, total;
            OK(cuMemGetInfo_v2(&free_bytes, &total));
            printf("%zu\n", free_bytes);
        } else if (!strcmp(line, "drop\n")) {
            printf("%d\n", cuMemFree_v2(exported));
        } else if (!strcmp(line, "close\n")) {
            printf("%d\n", cuIpcCloseMemHandle(opened));
        } else if (!strcmp(line, "release\n")) {
            printf("%d\n", cuMemRelease(imported));
        } else if (sscanf(line, "import %d %d", &process, &file) == 2) {
            printf("%d\n", import(process, file, &imported));
        } else if (!strncmp(line, "open ", 5)) {
            IpcHandle handle = {0};
            for (size_t i = 0; i < sizeof(handle); i++) sscanf(line + 5 + 2 * i, "%2hhx", &handle.bytes[i]);
            printf("%d\n", cuIpcOpenMemHandle_v2(&opened, handle, 1 /* lazy peer access */));
        } else if (!strncmp(line, "export ", 7)) {
            unsigned char handle[64];
            CUresult code = cuMemAlloc_v2(&exported, strtoull(line + 7, NULL, 0));
            if (code == SUCCESS) OK(cuIpcGetMemHandle(handle, exported));
            for (size_t i = 0; code == SUCCESS && i < sizeof(handle); i++) printf("%02x", handle[i]);
            printf("%s\n", code == SUCCESS ? "" : "refused");
        } else {
            CUdeviceptr address;
            CUresult code = cuMemAlloc_v2(&address, strtoull(line, NULL, 0));
            if (code == SUCCESS) OK(cuMemFree_v2(address));
            printf("%d\n", code);
        }
        fflush(stdout);
    }
    return failures != 0;
}
