"""nvidia-ml-py: what a monitoring tool sees. Usage: nvml.py [LIMIT]"""
import sys
import pynvml as n

n.nvmlInit()
assert n.nvmlDeviceGetCount() >= 1
handle = n.nvmlDeviceGetHandleByIndex(0)
assert n.nvmlDeviceGetUUID(handle).startswith("GPU-")
again = n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(handle))
assert n.nvmlDeviceGetName(again) == n.nvmlDeviceGetName(handle)
memory = n.nvmlDeviceGetMemoryInfo(handle)
memory2 = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2)
assert memory.free + memory.used <= memory.total
assert memory2.total == memory2.reserved + memory2.free + memory2.used, str(memory2)
if len(sys.argv) > 1:
    assert memory.total == memory2.total == int(sys.argv[1]), str(memory)
n.nvmlDeviceGetName(handle), n.nvmlSystemGetDriverVersion(), n.nvmlDeviceGetUtilizationRates(handle)
n.nvmlDeviceGetComputeRunningProcesses(handle)
n.nvmlShutdown()
print("passed nvidia-ml-py")
