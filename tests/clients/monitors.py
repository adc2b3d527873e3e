"""gpustat and nvitop: the memory that they show is the quota. Usage: MONITOR=gpustat|nvitop monitors.py [LIMIT]"""
import os
import sys

if os.environ["MONITOR"] == "gpustat":
    import gpustat

    total = gpustat.new_query().gpus[0].memory_total << 20
else:
    import nvitop

    total = nvitop.Device(0).memory_total()
assert total > 0
if len(sys.argv) > 1:
    assert total == int(sys.argv[1]), total
print("passed", os.environ["MONITOR"])
