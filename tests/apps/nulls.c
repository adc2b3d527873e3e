/* Calls each function named on the command line with nothing but zeros, in a child of its own: nulls CONTEXT NAME...
 * CONTEXT 1 starts the driver and makes a context current first. Prints each answer, so that two runs can be compared. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
typedef int (*Any)(long, long, long, long, long, long, long, long, long, long, long);
static void answer(const char *name, int with_context)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void *library = strncmp(name, "nvml", 4) == 0 ? nvml : cuda;
    if (with_context) {
        void *context;
        ((int (*)(unsigned))dlsym(cuda, "cuInit"))(0);
        ((int (*)(void))dlsym(nvml, "nvmlInit_v2"))();
        ((int (*)(void **, int))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0);
        ((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(context);
    }
    Any function = (Any)dlsym(library, name);
    if (function) printf("%s %d\n", name, function(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    else printf("%s is not there\n", name);
}
int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            answer(argv[i], argv[1][0] == '1');
            fflush(stdout);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) printf("%s ended by signal %d\n", argv[i], WTERMSIG(status));
    }
    return 0;
}
