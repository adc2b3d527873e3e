/* Arrays whose memory is mapped later: sparse ones by tiles, deferred ones as a whole. CUDA Driver API:
 * cuMemMapArrayAsync, cuArrayGetSparseProperties, cuMipmappedArrayGetSparseProperties. */
typedef struct {
    struct { unsigned width, height, depth; } tile;
    unsigned first_tail_level;
    unsigned long long tail_size;
    unsigned flags, reserved[4];
} SparseProperties;
typedef struct {
    unsigned resource_type;
    void *resource;
    unsigned subresource_type;
    union {
        struct { unsigned level, layer, x, y, z, width, height, depth; } level;
        struct { unsigned layer; unsigned long long offset, size; } tail;
    } part;
    unsigned operation, handle_type;
    unsigned long long handle, offset;
    unsigned devices, flags, reserved[2];
} MapInfo;
#define EXTRA_FUNCTIONS(X)                                                                                             \
    X(cuMemMapArrayAsync, cuMemMapArrayAsync, 11010, (MapInfo *, unsigned, CUstream))                                  \
    X(cuArrayGetSparseProperties, cuArrayGetSparseProperties, 11010, (SparseProperties *, CUarray))                    \
    X(cuMipmappedArrayGetSparseProperties, cuMipmappedArrayGetSparseProperties, 11010,                                 \
      (SparseProperties *, CUmipmappedArray))
#include "../driver.h"
enum { SPARSE = 0x40, DEFERRED = 0x80, TILE_POOL = 1, ARRAY = 0, MIPMAP = 1, LEVEL = 0, TAIL = 1, MAP = 1, UNMAP = 2 };
static size_t free_now(void)
{
    size_t left = 0, total;
    OK(cuMemGetInfo_v2(&left, &total));
    return left;
}
int main(void)
{
    int supported = 0;
    setup();
    OK(cuDeviceGetAttribute(&supported, 112 /* SPARSE_CUDA_ARRAY_SUPPORTED */, device));
    if (!supported) {
        printf("skip: no sparse arrays\n");
        return 77;
    }
    CUstream stream;
    OK(cuStreamCreate(&stream, STREAM_NON_BLOCKING));
    size_t before = free_now();
    /* A quarter of a terabyte of address, no memory. */
    Array3DDescriptor huge = {16384, 16384, 0, 0x20 /* FLOAT */, 4, SPARSE}, plain = {256, 256, 0, 0x20, 1, 0};
    CUarray array = NULL, ordinary = NULL;
    OK(cuArray3DCreate_v2(&array, &huge));
    OK(cuArray3DCreate_v2(&ordinary, &plain));
    OK(cuArrayDestroy(ordinary));
    CHECK(before - free_now() < 16u << 20);
    SparseProperties properties = {0};
    OK(cuArrayGetSparseProperties(&properties, array));
    CHECK(properties.tile.width > 0 && properties.tile.height > 0 && properties.tile.depth == 1);
    CHECK(properties.flags == 0 && properties.tail_size == 0 && properties.first_tail_level == 0);
    EXPECT(INVALID_VALUE, cuArrayGetSparseProperties(NULL, array));
    OK(cuArray3DCreate_v2(&ordinary, &plain));
    EXPECT(INVALID_VALUE, cuArrayGetSparseProperties(&properties, ordinary));
    OK(cuArrayGetSparseProperties(&properties, array));
    /* Memory for tiles. It is paid for when it is made, not when it is mapped, and held while mapped. */
    size_t size = 32u << 20, granularity = 0;
    AllocationProp prop = {.type = 1, .location = {1, device}};
    CUmemHandle unfit = 0, pool = 0;
    OK(cuMemGetAllocationGranularity(&granularity, &prop, 0));
    CHECK(size % granularity == 0);
    OK(cuMemCreate(&unfit, size, &prop, 0));
    prop.flags.usage = TILE_POOL;
    before = free_now();
    OK(cuMemCreate(&pool, size, &prop, 0));
    CHECK(before - free_now() >= size && before - free_now() < 2 * size);
    MapInfo tiles = {.resource_type = ARRAY, .resource = array, .subresource_type = LEVEL,
                     .part.level = {0, 0, 0, 0, 0, 4 * properties.tile.width, 2 * properties.tile.height, 1},
                     .operation = MAP, .handle = pool, .devices = 1u << device}, wrong;
#define REFUSE(code, field, value) do { wrong = tiles; wrong.field = value; EXPECT(code, cuMemMapArrayAsync(&wrong, 1, stream)); } while (0)
    size_t made = free_now();
    REFUSE(INVALID_VALUE, part.level.x, 1);                       /* not a multiple of the tile */
    REFUSE(INVALID_VALUE, part.level.width, 0);
    REFUSE(INVALID_VALUE, part.level.x, 1u << 20);                /* beyond the array */
    REFUSE(INVALID_VALUE, part.level.level, 1);                   /* no such level */
    REFUSE(INVALID_VALUE, part.level.layer, 1);
    REFUSE(INVALID_VALUE, devices, 0);
    REFUSE(INVALID_VALUE, devices, 3u << device);
    REFUSE(INVALID_VALUE, flags, 1);
    REFUSE(INVALID_VALUE, operation, 3);
    REFUSE(INVALID_VALUE, offset, size);                          /* beyond the pool */
    REFUSE(INVALID_VALUE, handle, unfit);                         /* not made for tiles */
    REFUSE(INVALID_VALUE, resource, ordinary);                    /* not sparse */
    REFUSE(INVALID_VALUE, resource_type, 7);
    EXPECT(INVALID_VALUE, cuMemMapArrayAsync(NULL, 1, stream));
    OK(cuMemMapArrayAsync(&tiles, 1, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(free_now() == made);
    /* The handle goes; the tiles keep the memory. */
    OK(cuMemRelease(pool));
    CHECK(free_now() == made);
    MapInfo less = tiles;
    less.operation = UNMAP;
    less.handle = 0;
    less.part.level.width = properties.tile.width;
    OK(cuMemMapArrayAsync(&less, 1, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(free_now() == made);
    tiles.operation = UNMAP;
    tiles.handle = 0;
    OK(cuMemMapArrayAsync(&tiles, 1, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(free_now() >= made + size);
    /* So does the array's end. */
    made = free_now();
    OK(cuMemCreate(&pool, size, &prop, 0));
    tiles.operation = MAP;
    tiles.handle = pool;
    OK(cuMemMapArrayAsync(&tiles, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemRelease(pool));
    CHECK(free_now() < made);
    OK(cuArrayDestroy(array));
    CHECK(free_now() == made);
    /* The small levels of a mipmap are one tail. */
    CUmipmappedArray mipmap = NULL;
    Array3DDescriptor levels = {2048, 2048, 0, 0x20, 1, SPARSE};
    OK(cuMipmappedArrayCreate(&mipmap, &levels, 12));
    CHECK(free_now() == made);
    OK(cuMipmappedArrayGetSparseProperties(&properties, mipmap));
    CHECK(properties.tail_size > 0 && properties.first_tail_level > 0 && properties.first_tail_level < 12);
    OK(cuMemCreate(&pool, size, &prop, 0));
    MapInfo both[2] = {{.resource_type = MIPMAP, .resource = mipmap, .subresource_type = LEVEL,
                        .part.level = {1, 0, 0, 0, 0, 1024, 1024, 1}, .operation = MAP, .handle = pool,
                        .devices = 1u << device},
                       {.resource_type = MIPMAP, .resource = mipmap, .subresource_type = TAIL,
                        .part.tail = {0, 0, properties.tail_size}, .operation = MAP, .handle = pool,
                        .offset = 8u << 20, .devices = 1u << device}};
    OK(cuMemMapArrayAsync(both, 2, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemRelease(pool));
    CHECK(free_now() < made);
    OK(cuMipmappedArrayDestroy(mipmap));
    CHECK(free_now() == made);
    /* Deferred: the whole array at once. */
    Array3DDescriptor later = {1024, 1024, 0, 0x20, 1, DEFERRED};
    OK(cuArray3DCreate_v2(&array, &later));
    CHECK(free_now() == made);
    EXPECT(INVALID_VALUE, cuArrayGetSparseProperties(&properties, array));
    OK(cuMemCreate(&pool, size, &prop, 0));
    MapInfo whole = {.resource_type = ARRAY, .resource = array, .operation = MAP, .handle = pool, .devices = 1u << device};
    OK(cuMemMapArrayAsync(&whole, 1, stream));
    OK(cuStreamSynchronize(stream));
    OK(cuMemRelease(pool));
    CHECK(free_now() < made);
    OK(cuArrayDestroy(array));
    CHECK(free_now() == made);
    OK(cuMemRelease(unfit));
    OK(cuArrayDestroy(ordinary));
    return finish("sparse");
}
