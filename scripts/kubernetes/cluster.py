"""The node of scripts/kubernetes-node.sh, for the scenarios: pods made, watched and removed by kubectl, services ended and started."""
import copy, hashlib, json, pathlib, subprocess, time
from datetime import datetime

NODE = pathlib.Path(__file__).resolve().parent.parent / "kubernetes-node.sh"
CHUNK = 256 << 20
NAMESPACE = "vcuda-system"
OWN_GPUS = '''told=$(vcuda smi --json); echo "$told"
for word in $told; do case $word in '"GPU-'*) word=${word#?} own=${own:+$own,}${word%??} ;; esac; done
export CUDA_VISIBLE_DEVICES=$own
'''


class Fault(Exception):
    """What a scenario cannot go on from."""


def limits(gpu, memory, cores):
    asked = {"vcuda.io/gpu": gpu, "vcuda.io/memory": memory, "vcuda.io/cores": cores}
    return {name: str(amount) for name, amount in asked.items() if amount}


def container(name="app", gpu=1, memory=16, cores=30, run="sleep 100000", **more):
    """A container of the test image that says what it sees, and then becomes the command.

    The simulated driver shows all GPUs of the node, whatever /dev has: the pod names its own, as it was told."""
    return {"name": name, "image": "localhost/app:node", "imagePullPolicy": "Never",
            "command": ["sh", "-c", OWN_GPUS + "exec " + run],
            "env": [{"name": "VCUDA_SIM", "value": "/run/vcuda/machine"}],
            "volumeMounts": [{"name": "machine", "mountPath": "/run/vcuda/machine"}],
            "resources": {"limits": limits(gpu, memory, cores)}} | more


def by_claim(made):
    """A pod, or the template of a controller's pods, that asks by a claim for what its containers' counts say; and the claim's template."""
    made, requests, constraints = copy.deepcopy(made), [], []
    for each in made["spec"]["containers"] + made["spec"].get("initContainers", []):
        counts = each["resources"].get("limits", {})
        if "vcuda.io/gpu" not in counts:
            continue
        gpus, memory, cores = (int(counts["vcuda.io/" + key]) for key in ("gpu", "memory", "cores"))
        names = [f"{each['name']}-{number}" for number in range(gpus)]
        capacity = {"requests": {"memory": str(memory * CHUNK // gpus), "cores": str(cores // gpus)}}
        requests += [{"name": name, "exactly": {"deviceClassName": "vcuda.io", "capacity": capacity}} for name in names]
        if gpus > 1:
            constraints.append({"requests": names, "distinctAttribute": "vcuda.io/uuid"})
        each["resources"] = {"claims": [{"name": "gpu", "request": name} for name in names]}
    if not requests:
        return made, []
    spec = {"spec": {"devices": {"requests": requests} | ({"constraints": constraints} if constraints else {})}}
    name = "share-" + hashlib.sha256(json.dumps(spec).encode()).hexdigest()[:12]
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
    return made, [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}]


def pod(name, containers, annotations=None, **more):
    if isinstance(containers, dict):
        containers = [containers]
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "dnsPolicy": "Default", "terminationGracePeriodSeconds": 1,
            "containers": containers, "volumes": [{"name": "machine", "hostPath": {"path": "/run/vcuda/machine"}}]} | more
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def deployment(name, replicas, template):
    """Pods of this kind that a controller makes anew."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": template["spec"] | {"restartPolicy": "Always"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}


def as_list(things):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": things})


def states(found):
    """A pod's phase, and the reasons and messages that its status has."""
    status = found.get("status", {})
    parts = [status] + [one for key in ("initContainerStatuses", "containerStatuses") for one in status.get(key, [])]
    parts += status.get("conditions", [])
    words = []
    for part in parts:
        states = part.get("state", {})
        for thing in [part, states.get("waiting", {}), states.get("terminated", {})]:
            words += [str(thing[key]) for key in ("reason", "message") if thing.get(key)]
    return status.get("phase", "unknown"), "; ".join(words)


def lines(log):
    """Lines of a log as containerd writes it, each with its time."""
    split = [line.split(" ", 3) for line in log.splitlines()]
    return [(when(parts[0]), parts[3]) for parts in split if len(parts) == 4]


def when(text):
    """The time that a log has before a line: up to nine digits of a second, of which Python reads just six."""
    second, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{second}.{fraction[:6]:0<6}+00:00").timestamp()


def told(text):
    """What a container printed of its limits at its start."""
    said, _ = json.JSONDecoder().raw_decode(text)
    return [(gpu["uuid"], gpu["memory_total_bytes"], gpu["tenants"][0]["core_limit_permille"]) for gpu in said["gpus"]]


class Cluster:
    def __init__(self, folder, mode="plugin"):
        self.folder = pathlib.Path(folder).resolve()
        # How pods ask: by counts, or by claims of the same amounts.
        self.mode = mode
        # Claims' templates that are there, by namespace and name.
        self.templates = set()

    def node(self, *words, given=None, seconds=300):
        """Runs scripts/kubernetes-node.sh with these words; its output."""
        done = subprocess.run([NODE, self.folder, *words], input=given, capture_output=True, text=True, timeout=seconds)
        if done.returncode != 0:
            raise Fault(f"{' '.join(map(str, words))[:80]}: {(done.stderr or done.stdout).strip()[-400:]}")
        return done.stdout

    def kubectl(self, *words, **more):
        return self.node("run", "kubectl", *words, **more)

    def pods(self, namespace="default"):
        return {one["metadata"]["name"]: one for one in json.loads(self.kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]}

    def create(self, things, as_written=False):
        if self.mode == "dra" and not as_written:
            things = self.asking_by_claims(things)
        self.kubectl("create", "-f", "-", given=as_list(things))

    def asking_by_claims(self, things):
        """Pods and deployments with claims for counts. The claims' templates are made."""
        converted, needed = [], {}
        for thing in things:
            templates = []
            if thing["kind"] == "Deployment":
                template, templates = by_claim(thing["spec"]["template"])
                thing = thing | {"spec": thing["spec"] | {"template": template}}
            elif thing["kind"] == "Pod":
                thing, templates = by_claim(thing)
            converted.append(thing)
            for one in templates:
                one["metadata"]["namespace"] = thing["metadata"].get("namespace", "default")
                needed[one["metadata"]["namespace"], one["metadata"]["name"]] = one
        new = {key: one for key, one in needed.items() if key not in self.templates}
        if new:
            self.kubectl("apply", "-f", "-", given=as_list(list(new.values())))
            self.templates |= set(new)
        return converted

    def remove_all(self, namespace="default"):
        self.kubectl("-n", namespace, "delete", "deployments,pods,resourceclaimtemplates", "--all", "--wait=false")
        self.templates = {key for key in self.templates if key[0] != namespace}
        self.wait(300, "pods are removed", lambda: not self.pods(namespace))

    def wait(self, seconds, what, condition):
        """Seconds until the condition held. What fails meanwhile is tried again."""
        begun, last = time.monotonic(), ""
        while time.monotonic() - begun < seconds:
            looked = time.monotonic()
            try:
                if condition():
                    return time.monotonic() - begun
            except (Fault, subprocess.TimeoutExpired, json.JSONDecodeError, KeyError) as error:
                last = f" ({error})"
            # Looks of many pods leave the machine to them half of the time.
            time.sleep(max(0.2, time.monotonic() - looked))
        raise Fault(f"not within {seconds} s: {what}{last}")

    def phases(self, names):
        found = self.pods()
        return {name: states(found[name])[0] if name in found else "absent" for name in names}

    def wait_phase(self, names, wanted, seconds=300):
        """Seconds until each of these pods was in one of the phases."""
        return self.wait(seconds, f"{len(names)} pods {'/'.join(wanted)}",
                         lambda: all(phase in wanted for phase in self.phases(names).values()))

    def logs(self, name, of="app"):
        """A container's logs that kubelet keeps on the node's disk, one of each of its last starts."""
        files = (self.folder / "state/disk/log/pods").glob(f"default_{name}_*/{of}/*.log")
        return sorted(files, key=lambda file: file.stat().st_mtime)

    def log(self, name, of="app"):
        """Lines of a container's last log, each with its time."""
        files = self.logs(name, of)
        return lines(files[-1].read_text()) if files else []

    def text(self, name, of="app"):
        return "\n".join(line for _, line in self.log(name, of))

    def seen(self, name, of="app"):
        """What the container was told at its start: GPUs as (UUID, bytes, thousandths of time)."""
        try:
            return told(self.text(name, of))
        except json.JSONDecodeError:
            raise Fault(f"{name}/{of} says no limits: {self.text(name, of)[:200]!r}") from None

    def wrong_limits(self, made):
        """Containers among the pods that saw other limits than theirs, with what they saw."""
        wrong = []
        for one in made:
            for each in one["spec"]["containers"] + one["spec"].get("initContainers", []):
                name, of = one["metadata"]["name"], each["name"]
                gpu, memory, cores = (int(each["resources"]["limits"]["vcuda.io/" + key]) for key in ("gpu", "memory", "cores"))
                try:
                    # One that has just begun has said nothing yet.
                    self.wait(60, f"{name}/{of} says its limits", lambda: self.seen(name, of))
                except Fault as fault:
                    wrong.append(str(fault))
                    continue
                seen = self.seen(name, of)
                told = [(total, share) for _, total, share in seen]
                if told != [(memory * CHUNK // gpu, cores * 10 // gpu)] * gpu or len({uuid for uuid, _, _ in seen}) != gpu:
                    wrong.append(f"{name}/{of} asked for {gpu}, {memory}, {cores} and saw {seen}")
        return wrong

    def untouched(self, names):
        """Pods among these that do not run, or not from their start."""
        found, touched = self.pods(), []
        for name in names:
            phase, words = states(found.get(name, {}))
            restarts = sum(one["restartCount"] for one in found.get(name, {}).get("status", {}).get("containerStatuses", []))
            if phase != "Running" or restarts:
                touched.append(f"{name}: {phase}, {restarts} restarts; {words}")
        return touched

    def program(self, of):
        """The number, in the node, of the chart's manager or plugin."""
        for one in self.pods(NAMESPACE).values():
            for status in one.get("status", {}).get("containerStatuses", []):
                if status["name"] == of and status.get("state", {}).get("running"):
                    task = status["containerID"].removeprefix("containerd://")
                    for line in self.node("run", "ctr", "-n", "k8s.io", "tasks", "ls").splitlines():
                        if line.startswith(task):
                            return int(line.split()[1])
        raise Fault(f"the chart's {of} does not run")

    def said(self, name, namespace="default"):
        """What is said of a pod: its status, and for claims its events, which alone have the driver's words."""
        told = states(self.pods(namespace)[name])[1]
        if self.mode == "plugin":
            return told
        events = json.loads(self.kubectl("-n", namespace, "get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json"))
        return "; ".join([told] + [f"{event['reason']}: {event['message']}" for event in events["items"]])

    def lost(self, pods):
        """Faults if pods were refused for good: the device plugin's protocol loses some, claims none."""
        return [f"refused for good: {pods}"] if pods and self.mode == "dra" else []

    def settings(self, *settings):
        """Values of the chart: these, and the mode."""
        return [f"mode={self.mode}", *settings]

    def chart(self, *settings):
        """The chart with these values (name=value) is rolled out."""
        self.node("chart", *self.settings(*settings), seconds=900)

    def grants(self):
        return json.loads(self.node("run", self.folder / "state/programs/vcuda", "grant", "list", "--json"))["grants"]

    def held_by_driver(self):
        """Grants whose memory the driver itself limits, too."""
        told = json.loads(self.node("run", self.folder / "state/programs/vcuda", "smi", "--json"))
        return sum(one["held_by_driver"] for gpu in told["gpus"] for one in gpu["tenants"])

    def keep_logs(self, name):
        """Copies of the logs of the chart's pods, which go with them: state/log/NAME-POD-CONTAINER.log."""
        for file in (self.folder / "state/disk/log/pods").glob(f"{NAMESPACE}_*/*/*.log"):
            pod, of = file.parts[-3].split("_")[1], file.parts[-2]
            (self.folder / f"state/log/{name}-{pod}-{of}-{file.name}").write_text(file.read_text())

    def left_behind(self):
        """What is on the node of pods that have ended: grants, specifications, directories."""
        files = self.node("run", "sh", "-c", "ls -d /run/cdi/vcuda.io-* /run/vcuda/containers/* 2>/dev/null || true").split()
        return [grant["id"] for grant in self.grants()] + files

    def processor_seconds(self, process):
        words = self.node("run", "cat", f"/proc/{process}/stat").rsplit(") ", 1)[1].split()
        return (int(words[11]) + int(words[12])) / 100
