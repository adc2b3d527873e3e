"""Real monitoring tools: the memory that they show is the quota, and no process of another tenant is listed.
Usage: MONITOR=gpustat|nvitop|nvtop [NVTOP=PROGRAM] monitors.py [LIMIT [FOREIGN_PID]]"""
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time


def ask_gpustat():
    import gpustat

    gpu = gpustat.new_query().gpus[0]
    return gpu.memory_total << 20, {process["pid"] for process in gpu.processes or []}


def ask_nvitop():
    import nvitop

    device = nvitop.Device(0)
    return device.memory_total(), set(device.processes())


def screen_of(program):
    """What the program draws until it shows memory, as text without control sequences; it is then told to end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm", LINES="40", COLUMNS="160")
        os.execv(program, [program])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    drawn, end, told = b"", time.monotonic() + 20, False
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                drawn += os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                break
        if not told and re.search(rb"Gi/.*Gi", drawn) and b"PID" in drawn:
            os.write(terminal, b"q")
            told = True
    status = os.waitpid(pid, 0)[1]
    assert told and status == 0, (status, drawn)
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|\(.|[=>])", " ", drawn.decode(errors="replace"))


def ask_nvtop():
    screen = screen_of(os.environ["NVTOP"])
    total = float(re.search(r"/ *([0-9.]+)Gi", screen)[1])
    return int(total * (1 << 30)), {int(word) for word in re.findall(r"\b\d+\b", screen)}


total, listed = {"gpustat": ask_gpustat, "nvitop": ask_nvitop, "nvtop": ask_nvtop}[os.environ["MONITOR"]]()
assert total > 0
if len(sys.argv) > 1:
    assert total == int(sys.argv[1]), total
if len(sys.argv) > 2:
    assert int(sys.argv[2]) not in listed, listed
print("passed", os.environ["MONITOR"])
