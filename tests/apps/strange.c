/* A driver that no shim knows: what it gives for a hooked name is none of its exported functions, and it has a private
 * table. Built as libcuda.so.1. */
static int hidden(void) { return 0; }
int cuInit(unsigned flags) { return flags != 0; }
int cuMemAlloc_v2(unsigned long long *address, unsigned long bytes) { return !address || !bytes; }
int cuDeviceGetName(char *name, int length, int device) { return !name || !length || device; }
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *found)
{
    if (name[2] == 'D') *function = (void *)cuDeviceGetName; /* known, and left alone */
    else *function = name[8] ? (void *)hidden : (void *)cuInit;
    if (found) *found = 0;
    return version < 0 || flags > 2;
}
int cuGetExportTable(const void **table, const void *id)
{
    static const void *entries[2];
    *table = entries;
    return id == 0;
}
