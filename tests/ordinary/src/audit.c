/* A library for LD_AUDIT that sees every object and every binding (rtld-audit(7)). */
#define _GNU_SOURCE
#include <link.h>
#include <stddef.h>

unsigned la_version(unsigned version) { return version; }
unsigned la_objopen(struct link_map *map, Lmid_t id, uintptr_t *cookie)
{
    *cookie = (uintptr_t)map;
    return id == LM_ID_BASE ? LA_FLG_BINDTO | LA_FLG_BINDFROM : 0;
}
uintptr_t la_symbind64(Elf64_Sym *symbol, unsigned index, uintptr_t *from, uintptr_t *to, unsigned *flags,
                       const char *name)
{
    (void)index, (void)from, (void)to, (void)flags, (void)name;
    return symbol->st_value;
}
