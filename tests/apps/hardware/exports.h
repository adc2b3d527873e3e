/* The functions that a shared library exports, read from its file: names, addresses, and which names are one function. */
#ifndef VCUDA_TESTS_EXPORTS_H
#define VCUDA_TESTS_EXPORTS_H
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

typedef struct { const char *name; uintptr_t address; } Export;
typedef struct { Export *rows; size_t count; } Exports;

static int by_name(const void *a, const void *b) { return strcmp(((const Export *)a)->name, ((const Export *)b)->name); }

/* Exported functions whose names begin with `prefix`, sorted by name. The file stays mapped, as the names lie in it. */
static Exports read_exports(const char *path, uintptr_t base, const char *prefix)
{
    Exports found = {NULL, 0};
    struct stat file;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &file)) {
        perror(path);
        exit(1);
    }
    const char *image = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    const ElfW(Ehdr) *header = (const void *)image;
    const ElfW(Shdr) *sections = (const void *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM) continue;
        const ElfW(Sym) *symbols = (const void *)(image + sections[i].sh_offset);
        const char *strings = image + sections[sections[i].sh_link].sh_offset;
        size_t count = sections[i].sh_size / sizeof *symbols;
        found.rows = calloc(count, sizeof *found.rows);
        for (size_t k = 0; k < count; k++) {
            const char *name = strings + symbols[k].st_name;
            if (symbols[k].st_shndx == SHN_UNDEF || (symbols[k].st_info & 15) != STT_FUNC || strncmp(name, prefix, strlen(prefix))) continue;
            found.rows[found.count++] = (Export){name, base + symbols[k].st_value};
        }
    }
    qsort(found.rows, found.count, sizeof *found.rows, by_name);
    return found;
}
static const Export *export_named(const Exports *exports, const char *name)
{
    Export wanted = {name, 0};
    return bsearch(&wanted, exports->rows, exports->count, sizeof wanted, by_name);
}
/* Of the names of one function, the first. */
static const char *name_at(const Exports *exports, uintptr_t address)
{
    for (size_t i = 0; i < exports->count; i++)
        if (exports->rows[i].address == address) return exports->rows[i].name;
    return NULL;
}
#endif
