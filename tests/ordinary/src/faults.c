/* Mistakes that sanitizers find: faults KIND. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int counter;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *count(void *guarded)
{
    for (int i = 0; i < 1000; i++) {
        if (guarded) pthread_mutex_lock(&mutex);
        counter++;
        if (guarded) pthread_mutex_unlock(&mutex);
    }
    return NULL;
}
static void threads(void *guarded)
{
    pthread_t first, second;
    pthread_create(&first, NULL, count, guarded);
    pthread_create(&second, NULL, count, guarded);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
}
int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "none";
    char *memory = malloc(30);
    strcpy(memory, kind);
    if (!strcmp(kind, "guarded")) threads(&mutex);
    if (!strcmp(kind, "race")) threads(NULL);
    if (!strcmp(kind, "beyond")) memory[30 + argc] = 1;
    if (!strcmp(kind, "overflow")) counter = 2147483647 + argc;
    if (!strcmp(kind, "leak")) {
        memory = malloc(77);
        memory = NULL;
        return 0;
    }
    free(memory);
    if (!strcmp(kind, "freed")) return memory[argc];
    printf("%d\n", counter == 2000 || counter == 0);
    return 0;
}
