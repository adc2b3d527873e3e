"""Suspends and resumes tenants of a running manager, and looks whether their contents are as before.
Usage: suspension.py FOLDER MEMORY_MIB yes|no CASE MANAGER
FOLDER: the unpacked archive; MEMORY_MIB: of each tenant that moves; yes: on the simulated GPU; MANAGER: the manager's PID
Prints "NAME VALUE UNIT"; status 1 if something is not as it must be."""
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback

FOLDER, MEMORY_MIB, SIM, CASE = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "yes", sys.argv[4]
VCUDA = str(FOLDER / "vcuda")
MIB = 1 << 20
grants, processes = [], []
failed = False


def report(name, value, unit):
    print(name, f"{value:.6g}" if isinstance(value, float) else value, unit, flush=True)


def wrong(what):
    global failed
    failed = True
    print("FAIL", what, flush=True)


def vcuda(*arguments):
    done = subprocess.run([VCUDA, *arguments], capture_output=True, text=True, timeout=90)
    return done.returncode, (done.stdout + done.stderr).strip()


def must(*arguments):
    status, said = vcuda(*arguments)
    if status:
        wrong(f"vcuda {' '.join(arguments)}: status {status}: {said}")
    return said


def tenants():
    """The GPU, and its tenants by the names of their grants."""
    gpu = json.loads(must("smi", "--json"))["gpus"][0]
    return gpu, {tenant["name"].rpartition("-")[0]: tenant for tenant in gpu["tenants"]}


def create(name, mib, *more):
    must("grant", "create", name, "--memory", f"{mib}MiB", "--cores", "20", *more)
    grants.append(name)


def clean():
    """Ends what a case left."""
    for process in processes:
        process.kill()
        process.wait()
    for name in grants:
        vcuda("grant", "release", "--force", name)


class Program:
    """`suspended` in a grant."""

    def __init__(self, grant, mib=8, command=None):
        command = command or [str(FOLDER / "apps/suspended-LINK"), str(mib)]
        self.process = subprocess.Popen([VCUDA, "run", *(["--sim"] if SIM else []), "--grant", grant, "--", *command],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(self.process)
        self.grant = grant
        if self.process.stdout.readline().strip() != "ready":
            wrong(f"{grant} did not begin")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        said = self.process.stdout.readline().strip()
        if not said:
            wrong(f"{self.grant} ended with status {self.process.wait()}")
        return said

    def ask(self, line, expected=None):
        self.tell(line)
        said = self.answer()
        if expected is not None and said != expected:
            wrong(f"{self.grant}: {line}: {said}")
        return said

    def end(self):
        self.process.stdin.close()
        if self.process.wait(60):
            wrong(f"{self.grant} ended with status {self.process.returncode}")


def timed(action, *arguments):
    began = time.monotonic()
    action(*arguments)
    return (time.monotonic() - began) * 1e3


def spread(name, each):
    report(name + "_least", min(each), "ms")
    report(name + "_median", statistics.median(each), "ms")
    report(name + "_most", max(each), "ms")


def by_hand(rounds, mib):
    """Suspensions, resumes, and first calls of one tenant."""
    create("hand", mib + 1024, "--suspendable")
    program = Program("hand", mib)
    print(vcuda("doctor", tenants()[1]["hand"]["name"])[1])
    gpu, before = tenants()
    report("used_before", before["hand"]["memory_used_bytes"], "bytes")
    report("gpu_before", gpu["memory_used_bytes"], "bytes")
    must("suspend", "hand")
    gpu, away = tenants()
    report("gpu_suspended", gpu["memory_used_bytes"], "bytes")
    report("suspended_bytes", away["hand"]["suspended_bytes"], "bytes")
    helpers()
    must("resume", "hand")
    gpu, after = tenants()
    report("gpu_after", gpu["memory_used_bytes"], "bytes")
    report("used_after", after["hand"]["memory_used_bytes"], "bytes")
    program.ask("stream-query", "stream-query 0 intact")
    suspensions, resumes, first = [], [], []
    for _ in range(rounds):
        suspensions.append(timed(must, "suspend", "hand"))
        resumes.append(timed(must, "resume", "hand"))
        must("suspend", "hand")
        first.append(timed(program.ask, "stream-query", "stream-query 0 intact"))
    spread("suspend", suspensions)
    spread("resume", resumes)
    spread("first_call_and_check", first)
    spread("check_alone", [timed(program.ask, "stream-query", "stream-query 0 intact") for _ in range(3)])
    program.end()


def helpers():
    """What waits for a suspended tenant: resident memory of the runs of vcuda-checkpoint, and their memory on the GPU."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            said = stat.read_text()
        except OSError:
            continue
        if said.startswith("Name:\tvcuda-checkpoin"):
            report("helper_resident", int(re.search(r"VmRSS:\s+(\d+)", said)[1]) << 10, "bytes")
            if not SIM:
                listed = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"],
                                        capture_output=True, text=True).stdout
                print("nvidia-smi while suspended:", listed.split("\n"), "helper", stat.parent.name, flush=True)


def calls():
    """Each call as the first of a suspended tenant; then all at once, each in its thread; a capture across a suspension."""
    create("calls", 2048, "--suspendable")
    program = Program("calls")
    names = program.ask("calls").split()
    for name in names:
        must("suspend", "calls")
        took = timed(program.ask, name, f"{name} 0 intact")
        report("first_" + name.replace("-", "_"), took, "ms")
    must("suspend", "calls")
    program.ask("all", "all 0 intact")
    program.ask("capture", "capture 0")
    status, said = vcuda("suspend", "calls")
    print(f"suspend in a capture: status {status}: {said}", flush=True)
    program.ask("captured", "captured 0 intact")
    program.end()


def manager_killed(pid):
    """The manager is killed while a tenant is suspended; the next one brings it back."""
    create("orphan", 2048, "--suspendable")
    program = Program("orphan")
    must("suspend", "orphan")
    command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    os.kill(pid, signal.SIGKILL)
    time.sleep(1)  # its files are closed, and its locks free
    manager = subprocess.Popen(command, stdout=sys.stdout, stderr=subprocess.STDOUT)
    report("first_call_after_kill", timed(program.ask, "copy", "copy 0 intact"), "ms")
    program.end()
    clean()
    manager.terminate()
    manager.wait(30)


def turns(seconds):
    """Two busy tenants and one that does not move, whose memory together is more than the GPU's."""
    gpu, _ = tenants()
    total = gpu["memory_total_bytes"] // MIB
    quota = MEMORY_MIB * 3 // 2
    rest = total - 2 * MEMORY_MIB - 3072
    held = MEMORY_MIB * 13 // 10
    create("rest", rest)
    create("a", quota, "--suspendable")
    create("b", quota, "--suspendable")
    other = Program("rest")
    other.ask(f"hold {rest - 600}", "hold 0")
    a = Program("a", held)
    began = time.monotonic()
    b = Program("b", held)
    report("room_for_b", (time.monotonic() - began) * 1e3, "ms")
    report("a_back", timed(a.ask, "copy", "copy 0 intact"), "ms")
    for program in a, b:
        program.tell(f"work {seconds}")
    states = []
    stop = threading.Event()

    def look():
        while not stop.wait(0.1):
            _, now = tenants()
            states.append((now["a"]["state"], now["b"]["state"]))

    looks = threading.Thread(target=look)
    looks.start()
    for name, program in ("a", a), ("b", b):
        said = program.answer().split()
        report(f"{name}_steps", int(said[1]), "steps")
        report(f"{name}_longest_step", float(said[2]), "ms")
        if said[3] != "intact" or int(said[1]) < 10:
            wrong(f"{name}: {said}")
    stop.set()
    looks.join()
    report("turns", sum(1 for one, two in zip(states, states[1:]) if one[0] != two[0] and two[0] == "running"), "times")
    report("both_running", sum(pair == ("running", "running") for pair in states), "looks")
    report("looks", len(states), "looks")
    a.ask("copy", "copy 0 intact")
    b.ask("copy", "copy 0 intact")
    for program in a, b, other:
        program.end()
    print(must("events"), flush=True)


def torch():
    """A training of PyTorch that is suspended again and again ends with the result that it has without the shim."""
    client = FOLDER / "gpu-acceptance/torch_steps.py"
    alone = subprocess.run([sys.executable, client], capture_output=True, text=True, input="go\n", timeout=90).stdout
    create("torch", 8192, "--suspendable")
    program = Program("torch", command=[sys.executable, str(client)])
    program.tell("go")
    rounds = 0
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(program.process.stdout.read().split("\n")))
    reader.start()
    while reader.is_alive() and rounds < 50:
        status, said = vcuda("suspend", "torch")
        if not reader.is_alive():
            break
        rounds += status == 0
        reader.join(0.2)
    reader.join(60)
    report("torch_rounds", rounds, "rounds")
    results = [[line for line in said if line.startswith("loss")] for said in (alone.split("\n"), lines)]
    print(results, flush=True)
    if results[0] != results[1] or not results[0] or not rounds:
        wrong(f"PyTorch: {lines}; without the shim {alone}")
    program.process.wait(60)


CASES = {
    "hand": lambda: by_hand(3 if SIM else 5, 256 if SIM else MEMORY_MIB),
    "small": lambda: by_hand(8, 8),
    "calls": calls,
    "killed": lambda: manager_killed(int(sys.argv[5])),
    "turns": lambda: turns(25),
    "torch": torch,
}
try:
    CASES[CASE]()
except Exception as error:
    traceback.print_exc()
    wrong(repr(error))
clean()
sys.exit(failed)
