"""Runs a command under a time limit, and says where it stood if it hung or crashed: a machine with a GPU is there for minutes,
so the first run has to tell why.
Usage: limit.py SECONDS BACKTRACE COMMAND...
Status: the command's (128 + N for signal N), 124 if it did not end. Stacks are written into the file BACKTRACE."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys

DEBUGGER_SECONDS = 40


def debugger():
    return shutil.which("gdb") or shutil.which("cuda-gdb")


def debug(arguments, out):
    """Runs the debugger in batch mode, in a session of its own that ends with it."""
    if not debugger():
        out.write("no debugger\n")
        return
    out.flush()
    process = subprocess.Popen([debugger(), "-q", "-nx", "-batch", *arguments], stdin=subprocess.DEVNULL, stdout=out,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        process.wait(DEBUGGER_SECONDS)
    except subprocess.TimeoutExpired:
        end_session(process.pid)


def members(session):
    """PIDs of a session's processes."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            yield int(stat.parent.name)


def end_session(session):
    for pid in members(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def write_stacks(session, out):
    """What each thread of the session does: by the kernel, then by the debugger for the youngest two processes."""
    pids = sorted(members(session))
    for pid in pids:
        for thread in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
            told = []
            for name in ("comm", "wchan", "syscall", "stack"):
                try:
                    told.append((thread / name).read_text().strip().replace("\n", " < "))
                except OSError:
                    told.append("?")
            out.write(f"{pid}/{thread.name} {' | '.join(told)}\n")
    for pid in pids[-2:]:
        debug(["-p", str(pid), "-ex", "thread apply all bt 24"], out)


def main():
    seconds, backtrace, command = float(sys.argv[1]), sys.argv[2], sys.argv[3:]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        with open(backtrace, "a") as out:
            write_stacks(process.pid, out)
        end_session(process.pid)
        return 124
    end_session(process.pid)  # what a crashed program left behind
    if status < 0 or status in (132, 134, 135, 136, 139):
        with open(backtrace, "a") as out:
            debug(["-ex", "run", "-ex", "bt 40", "-ex", "info sharedlibrary", "--args", *command], out)
    return status if status >= 0 else 128 - status


sys.exit(main())
