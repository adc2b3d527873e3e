/* Modules, libraries, kernels. CUDA Driver API: "Module Management", "Library Management", "Execution Control". */
#include "../driver.h"
int main(void)
{
    setup();
    CUmodule second = NULL;
    CUfunction f = NULL;
    EXPECT(NOT_FOUND, cuModuleGetFunction(&f, module, "no_such_kernel"));
    CHECK(cuModuleLoadData(&second, "this is neither PTX nor a binary") != SUCCESS);
    EXPECT(INVALID_VALUE, cuModuleLoadData(NULL, SPIN_PTX));
    CUdeviceptr global = 0;
    size_t size = 0;
    OK(cuModuleGetGlobal_v2(&global, &size, module, "sink"));
    CHECK(global != 0 && size == 8);
    EXPECT(NOT_FOUND, cuModuleGetGlobal_v2(&global, &size, module, "missing"));
    int threads = 0;
    OK(cuFuncGetAttribute(&threads, 0 /* MAX_THREADS_PER_BLOCK */, spin));
    CHECK(threads >= 32);
    /* Launch arguments are checked. */
    uint64_t zero = 0;
    void *params[] = {&zero};
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernel(spin, 1, 1, 1, 4096, 1, 1, 0, NULL, params, NULL));
    CHECK(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) != SUCCESS);
    LaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
    OK(cuLaunchKernelEx(&config, spin, params, NULL));
    EXPECT(INVALID_VALUE, cuLaunchKernelEx(NULL, spin, params, NULL));
    OK(cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, params));
    /* The packed-buffer form of the arguments. */
    uint64_t packed = 1000;
    size_t packed_size = sizeof packed;
    void *extra[] = {(void *)1, &packed, (void *)2, &packed_size, (void *)0};
    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cuCtxSynchronize());
    /* Libraries load lazily and independently of a context; their kernels can be launched as functions. */
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    OK(cuLibraryLoadData(&library, SPIN_PTX, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "vcuda_spin_ns"));
    EXPECT(NOT_FOUND, cuLibraryGetKernel(&kernel, library, "missing"));
    OK(cuLibraryGetKernel(&kernel, library, "vcuda_spin_ns"));
    OK(cuKernelGetFunction(&f, kernel));
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(library));
    OK(cuModuleUnload(module));
    return finish("module");
}
