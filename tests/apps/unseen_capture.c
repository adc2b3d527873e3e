/* A capture that begins and ends past every hook, by the address in the driver's own symbol table, as a private interface of
 * the driver could: its launches and the work beside it answer as ever. CUDA Driver API: "Stream Management". */
#include "driver.h"
#include <elf.h>
#include <link.h>
#include <unistd.h>
static void *in_table_of(struct link_map *map, const char *name)
{
    const char *names = NULL;
    const ElfW(Sym) *symbols = NULL;
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_STRTAB) names = (const char *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
    }
    /* The names follow the symbols. */
    for (const ElfW(Sym) *at = symbols; at && (const char *)at < names; at++)
        if (at->st_value && !strcmp(names + at->st_name, name)) return (char *)map->l_addr + at->st_value;
    return NULL;
}
/* The driver stands behind its front, which has no symbols. */
static void *found_in_table(const char *name)
{
    struct link_map *map;
    void *found = NULL;
    if (dlinfo(dlopen("libcuda.so.1", RTLD_NOW), RTLD_DI_LINKMAP, &map)) return NULL;
    for (; map && !found; map = map->l_next)
        if (strstr(map->l_name, "/libcuda.so")) found = in_table_of(map, name);
    return found;
}
int main(void)
{
    CUstream captured, other;
    CUgraph graph = NULL;
    setup();
    CUresult (*begin)(CUstream, int) = (CUresult(*)(CUstream, int))found_in_table("cuStreamBeginCapture_v2");
    CUresult (*end)(CUstream, CUgraph *) = (CUresult(*)(CUstream, CUgraph *))found_in_table("cuStreamEndCapture");
    CHECK(begin && end);
    if (failures) return finish("unseen_capture");
    OK(cuStreamCreate(&captured, STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other, STREAM_NON_BLOCKING));
    for (int round = 0; round < 5; round++) {
        OK(begin(captured, round % 3));
        for (int i = 0; i < 20; i++) {
            OK(launch(spin, captured, 300000));
            OK(launch(spin, other, 300000));
            usleep(1000);
        }
        OK(end(captured, &graph));
        OK(cuGraphDestroy(graph));
        OK(cuStreamSynchronize(other));
    }
    return finish("unseen_capture");
}
