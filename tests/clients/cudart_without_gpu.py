"""The real CUDA runtime on a real driver and no GPU: the status of each call, which must be the same with and without the shim.
Usage: cudart_without_gpu.py LIBCUDART"""
import ctypes
import sys

runtime = ctypes.CDLL(sys.argv[1])
runtime.cudaGetErrorName.restype = ctypes.c_char_p
number = ctypes.c_int(-1)
pointer = ctypes.c_void_p()
size = ctypes.c_size_t()
CALLS = {
    "cudaDriverGetVersion": (ctypes.byref(number),),
    "cudaRuntimeGetVersion": (ctypes.byref(number),),
    "cudaGetDeviceCount": (ctypes.byref(number),),
    "cudaSetDevice": (0,),
    "cudaFree": (None,),
    "cudaMalloc": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20)),
    "cudaMallocAsync": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20), None),
    "cudaMallocManaged": (ctypes.byref(pointer), ctypes.c_size_t(1 << 20), 1),
    "cudaMallocHost": (ctypes.byref(pointer), ctypes.c_size_t(4096)),
    "cudaMemGetInfo": (ctypes.byref(size), ctypes.byref(size)),
    "cudaStreamCreate": (ctypes.byref(pointer),),
    "cudaEventCreate": (ctypes.byref(pointer),),
    "cudaDeviceSynchronize": (),
    "cudaDeviceReset": (),
    "cudaGetLastError": (),
}
for name, arguments in CALLS.items():
    number.value = -1
    status = getattr(runtime, name)(*arguments)
    print(name, status, runtime.cudaGetErrorName(status).decode(), number.value)
