"""cuda-core: NVRTC compile, launch, pools, an out-of-memory that is survived. Usage: core.py [LIMIT]"""
import sys
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

device = Device(0)
device.set_current()
stream = device.create_stream()
code = 'extern "C" __global__ void vcuda_spin_ns(unsigned long long ns) { }'
program = Program(code, code_type="c++", options=ProgramOptions(arch="sm_" + device.arch))
kernel = program.compile("cubin", name_expressions=("vcuda_spin_ns",)).get_kernel("vcuda_spin_ns")
import ctypes

launch(stream, LaunchConfig(grid=1, block=32), kernel, ctypes.c_uint64(1000000))
stream.sync()
buffer = device.memory_resource.allocate(1 << 20, stream=stream)
buffer.close(stream)
limit = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 46
try:
    device.memory_resource.allocate(limit, stream=stream)
    raise SystemExit("more than everything was given")
except Exception as error:
    assert "OUT_OF_MEMORY" in str(error), error
device.memory_resource.allocate(1 << 20, stream=stream).close(stream)
stream.sync()
print("passed cuda-core")
