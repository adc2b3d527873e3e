"""The real CUDA runtime, routing only (it wants NVIDIA's own driver for more): whatever function it resolved that the
shim hooks must be the shim's. Seen from outside both: after its initialisation the runtime's tables are searched, word
by word, for addresses of the driver and of the shim. Usage: cudart.py LIBCUDART SHIM_FILE_NAME"""
import ctypes
import subprocess
import sys

runtime = ctypes.CDLL(sys.argv[1])
runtime.cudaFree(None)  # initialises the runtime as far as it gets; the result does not matter here
count = ctypes.c_int()
runtime.cudaGetDeviceCount(ctypes.byref(count))

maps = [line.split(None, 5) for line in open("/proc/self/maps")]


def loaded(name):
    """Path and load address of the library whose file has this name."""
    for row in maps:
        if len(row) == 6 and row[5].strip().rsplit("/", 1)[-1] == name and row[2] == "00000000":
            return row[5].strip(), int(row[0].split("-")[0], 16)
    raise SystemExit(f"{name} is not loaded")


def exports(path, base):
    lines = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {base + int(a, 16): n for a, kind, n in (row.split() for row in lines.splitlines()) if kind in "TtWi"}


driver = next(r[5].strip() for r in maps if len(r) == 6 and "simulator_cuda" in r[5])
hooks = exports(*loaded(sys.argv[2]))
real = exports(*loaded(driver.rsplit("/", 1)[-1]))
hooked_names = set(hooks.values())
runtime_file = sys.argv[1].rsplit("/", 1)[-1]
found, bypassing, after = set(), set(), False
with open("/proc/self/mem", "rb") as memory:
    for row in maps:
        name = row[5].strip() if len(row) == 6 else ""
        # The runtime's own data and the zeroed part behind it (no name). Not the heap: the simulated driver keeps its
        # own table of addresses there.
        mine = name.endswith(runtime_file) or (after and not name)
        after = mine
        if not mine or "w" not in row[1]:
            continue
        low, high = (int(x, 16) for x in row[0].split("-"))
        memory.seek(low)
        for word in memoryview(memory.read(high - low)).cast("Q"):
            if word in hooks:
                found.add(hooks[word])
            elif word in real and real[word] in hooked_names:
                bypassing.add(real[word])
assert not bypassing, f"resolved past the shim: {sorted(bypassing)}"
assert len(found) >= 40, f"only {sorted(found)}"
print(f"passed {runtime_file}: {len(found)} hooked functions resolved, all the shim's")
