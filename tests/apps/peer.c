/* Does what each line on stdin says and answers with a line:
 *   BYTES         allocates so much and frees it at once: the status
 *   free          what cuMemGetInfo says is free (bytes)
 *   export BYTES  allocates so much for other processes: its IPC handle in hexadecimal, or "refused"
 *   drop          frees that: the status
 *   open HANDLE   opens what another process has exported: the status
 *   close         closes that: the status */
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, (unsigned char *, CUdeviceptr))                                      \
    X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, 11000, (CUdeviceptr *, IpcHandle, unsigned))                          \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr))
typedef struct { unsigned char bytes[64]; } IpcHandle;
#include "driver.h"
int main(void)
{
    char line[256];
    CUdeviceptr exported = 0, opened = 0;
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
