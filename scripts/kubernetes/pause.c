/* Holds a pod's namespaces, and is the node's first process: waits for processes that have lost their parent, until a signal ends it. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void finish(int signal)
{
    (void)signal;
    _exit(0);
}

static void nothing(int signal) { (void)signal; }

int main(void)
{
    signal(SIGTERM, finish);
    signal(SIGINT, finish);
    /* Without SA_RESTART: pause() returns. */
    struct sigaction child = {.sa_handler = nothing};
    sigaction(SIGCHLD, &child, NULL);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        /* A child that ends between the two is waited for at the next. */
        pause();
    }
}
