"""UCX (MPI, NIXL, Dask) puts its own functions before the driver's by changing their first instructions, and goes on to the
original by a copy of them. Patches each named function with UCX's own patcher and calls it through the patch.

Arguments: the folder of UCX's libraries, the library of the functions, the functions' names.
"""

import ctypes
import os
import sys

# No thread of this program runs in a function while it is patched.
os.environ["UCX_MEM_BISTRO_GRACE_DURATION"] = "0"
# The patcher's library takes symbols of the other one.
ctypes.CDLL(os.path.join(sys.argv[1], "libucs.so.0"), ctypes.RTLD_GLOBAL)
ucm = ctypes.CDLL(os.path.join(sys.argv[1], "libucm.so.0"))
driver = ctypes.CDLL(sys.argv[2])
# Twelve integers: registers and stack, as many as any function has.
prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_long] * 12)
NOTHING = [0] * 12
# UCX has room for the copies of some 160 functions.
PROCESS_HAS = 100


def patched(name):
    """What differs in a call of the function through a patch; None if nothing does."""
    function = ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
    direct = prototype(function)
    before = direct(*NOTHING)
    original = ctypes.c_void_p()
    seen = []

    def hook(*arguments):
        seen.append(name)
        return prototype(original.value)(*arguments)

    hook = prototype(hook)
    kept.append(hook)
    status = ucm.ucm_bistro_patch(
        ctypes.c_void_p(function), ctypes.cast(hook, ctypes.c_void_p), name.encode(), ctypes.byref(original), None
    )
    if status != 0:
        return f"not patched ({status}): {ctypes.string_at(function, 16).hex()}"
    after = direct(*NOTHING)
    if seen != [name] or after != before:
        return f"{seen}: {before} before, {after} through the patch"
    return None


kept = []
failures = 0
names = sys.argv[3:]
for start in range(0, len(names), PROCESS_HAS):
    child = os.fork()
    if child == 0:
        failed = 0
        for name in names[start : start + PROCESS_HAS]:
            difference = patched(name)
            if difference is not None:
                failed += 1
                print(f"{name}: {difference}", flush=True)
        os._exit(min(failed, 255))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        failures += abs(code)
        print(f"batch {start}: {code}", flush=True)
print("passed" if failures == 0 else f"{failures} of {len(names)} failed")
sys.exit(failures != 0)
