"""Nodes that are objects alone, without a kubelet: their GPUs in slices or in annotations, pods made, watched and removed by the API."""
import http.client, json, os, pathlib, signal, socket, subprocess, tempfile, threading, time
from concurrent.futures import ThreadPoolExecutor

from cluster import CHUNK, NODE, Fault

GIB = 1 << 30
GPUS, GPU_GIB, SHARES = 8, 80, 16
CHUNKS = GPU_GIB * GIB // CHUNK
LABEL = "vcuda.io/fleet"
PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = RESOURCES + "/namespaces/default/resourceclaims"


class OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket, which no network namespace hides."""

    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """The node's API server, by `kubectl proxy`."""

    def __init__(self, cluster):
        self.folder = tempfile.TemporaryDirectory(prefix="vcuda-fleet-")
        self.path = str(pathlib.Path(self.folder.name) / "api")
        words = [NODE, cluster.folder, "run", "kubectl", "proxy", "--unix-socket", self.path]
        # In a group of its own, as it has children.
        self.proxy = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.own = threading.local()
        cluster.wait(30, "kubectl's proxy", lambda: pathlib.Path(self.path).exists())
        self.workers = ThreadPoolExecutor(8)

    def close(self):
        self.workers.shutdown()
        os.killpg(self.proxy.pid, signal.SIGTERM)
        self.proxy.wait()
        self.folder.cleanup()

    def call(self, method, path, body=None, kind="application/json"):
        """The answer; Fault if it is an error, but that nothing is there to delete."""
        for is_last in (False, True):
            try:
                if not hasattr(self.own, "connection"):
                    self.own.connection = OverSocket(self.path)
                self.own.connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": kind})
                answer = self.own.connection.getresponse()
                said = json.loads(answer.read())
                break
            except (OSError, http.client.HTTPException) as error:
                del self.own.connection
                if is_last:
                    raise Fault(f"{method} {path}: {error}") from None
        if answer.status >= 400 and (method, answer.status) != ("DELETE", 404):
            raise Fault(f"{method} {path}: {said.get('message')}")
        return said

    def each(self, work, things):
        return list(self.workers.map(work, things))

    def items(self, path):
        return self.call("GET", f"{path}?labelSelector={LABEL}")["items"] if path != CLAIMS else self.call("GET", path)["items"]


def counts(gib, percent):
    return {"vcuda.io/gpu": "1", "vcuda.io/memory": str(gib * GIB // CHUNK), "vcuda.io/cores": str(percent)}


def node(name, mode):
    """A node of 8 GPUs. In mode plugin they are counts and an annotation, in mode dra a slice."""
    allocatable = {"cpu": "256", "memory": "2Ti", "pods": "250"}
    if mode == "plugin":
        allocatable |= {"vcuda.io/gpu": str(GPUS * SHARES), "vcuda.io/memory": str(GPUS * CHUNKS), "vcuda.io/cores": str(GPUS * 100)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {LABEL: "true", "kubernetes.io/hostname": name}},
            # Pods of others stay away.
            "spec": {"taints": [{"key": LABEL, "effect": "NoSchedule"}]},
            "status": {"capacity": allocatable, "allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}}


def slice_of(name):
    """What the driver of such a node would write (plugin/src/dra/device.rs)."""

    def capacity(value, default, least, most):
        return {"value": value, "requestPolicy": {"default": default, "validRange": {"min": least, "max": most, "step": least if least != "0" else "1"}}}

    def gpu(number):
        memory = f"{GPU_GIB << 10}Mi"
        return {"name": f"gpu-{number}", "allowMultipleAllocations": True,
                "attributes": {"type": {"string": "vcuda"}, "uuid": {"string": f"GPU-{name}-{number}"}},
                "capacity": {"memory": capacity(memory, memory, "64Mi", memory), "cores": capacity("100", "0", "0", "100"),
                             "slots": capacity(str(SHARES), "1", "1", "1")}}

    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{name}-vcuda.io", "labels": {LABEL: "true"}},
            "spec": {"driver": "vcuda.io", "nodeName": name, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                     "devices": [gpu(number) for number in range(GPUS)]}}


def template(gib, percent):
    request = {"name": "gpu", "exactly": {"deviceClassName": "vcuda.io",
                                          "capacity": {"requests": {"memory": f"{gib}Gi", "cores": str(percent)}}}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
            "metadata": {"name": f"fleet-{gib}-{percent}", "labels": {LABEL: "true"}}, "spec": {"spec": {"devices": {"requests": [request]}}}}


def pod(name, gib, percent, mode):
    app = {"name": "app", "image": "localhost/app:node", "resources": {"requests": {"cpu": "1", "memory": "4Gi"}}}
    spec = {"containers": [app], "nodeSelector": {LABEL: "true"}, "tolerations": [{"operator": "Exists"}], "automountServiceAccountToken": False}
    if mode == "plugin":
        app["resources"]["limits"] = counts(gib, percent)
    else:
        app["resources"]["claims"] = [{"name": "gpu"}]
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": f"fleet-{gib}-{percent}"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {LABEL: "true"}}, "spec": spec}


def key(name):
    """The key of a pod's container in its node's annotation (crates/quota/src/pods/node_gpus.rs)."""
    found = 0x811C9DC5
    for byte in f"default/{name}/app".encode():
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found


class Node:
    """What a node's plugin and manager know, in mode plugin: the fullest GPU with room is granted, as by their default."""

    def __init__(self, name):
        self.name, self.held, self.is_published = name, {}, False
        self.free = [[CHUNKS, 100, SHARES] for _ in range(GPUS)]

    def grant(self, name, gib, percent):
        amounts = gib * GIB // CHUNK, percent, 1
        fitting = [number for number, free in enumerate(self.free) if all(has >= asked for has, asked in zip(free, amounts))]
        if not fitting:
            return False
        number = min(fitting, key=lambda number: self.free[number])
        self.free[number] = [has - asked for has, asked in zip(self.free[number], amounts)]
        self.held[name] = number, amounts
        self.is_published = False
        return True

    def release(self, name):
        if name in self.held:
            number, amounts = self.held.pop(name)
            self.free[number] = [has + asked for has, asked in zip(self.free[number], amounts)]
            self.is_published = False

    def publish(self, api):
        gpus = [{"id": f"GPU-{self.name}-{number}", "mem": chunks, "of": CHUNKS, "cores": cores, "shares": shares}
                for number, (chunks, cores, shares) in enumerate(self.free)]
        text = json.dumps({"gpus": gpus, "held": sorted(key(name) for name in self.held)})
        api.call("PATCH", f"{NODES}/{self.name}", {"metadata": {"annotations": {"vcuda.io/gpus": text}}}, "application/merge-patch+json")
        self.is_published = True


class Fleet:
    """So many nodes, and their pods."""

    def __init__(self, api, mode, nodes):
        self.api, self.mode = api, mode
        self.nodes = {f"fleet-{number:04}": Node(f"fleet-{number:04}") for number in range(nodes)}
        # By pod: what it asks for (GiB, percent); its node and the moment at which that was seen.
        self.asked, self.bound = {}, {}
        # Pods that the scheduler has found no node for, and those that a node had no room for.
        self.waiting, self.refused, self.ever_refused = set(), set(), set()
        self.lock, self.is_over = threading.Lock(), False

    def make(self):
        """Makes the nodes."""

        def one(name):
            self.api.call("POST", NODES, node(name, self.mode))
            if self.mode == "dra":
                self.api.call("POST", RESOURCES + "/resourceslices", slice_of(name))
            else:
                self.nodes[name].publish(self.api)

        self.api.each(one, self.nodes)
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        """Lists and watches the pods, again and again until the end."""
        while not self.is_over:
            try:
                found = self.api.call("GET", f"{PODS}?labelSelector={LABEL}")
                for one in found["items"]:
                    self.heard("ADDED", one)
                connection = OverSocket(self.api.path)
                version = found["metadata"]["resourceVersion"]
                connection.request("GET", f"{PODS}?watch=true&labelSelector={LABEL}&resourceVersion={version}")
                answer = connection.getresponse()
                while line := answer.readline():
                    event = json.loads(line)
                    self.heard(event["type"], event["object"])
                connection.close()
            except (Fault, OSError, ValueError, http.client.HTTPException):
                pass
            time.sleep(0.1)

    def heard(self, kind, found):
        if kind not in ("ADDED", "MODIFIED"):
            return
        name = found["metadata"]["name"]
        conditions = found.get("status", {}).get("conditions", [])
        with self.lock:
            # What is said of one that was deleted comes late.
            if name not in self.asked:
                return
            if found["spec"].get("nodeName"):
                self.bound.setdefault(name, (found["spec"]["nodeName"], time.monotonic()))
                self.waiting.discard(name)
            elif any((each["type"], each["status"]) == ("PodScheduled", "False") for each in conditions):
                self.waiting.add(name)

    def add(self, pods):
        """Makes pods of these names and sizes."""
        self.asked |= pods
        if self.mode == "dra":
            have = {one["metadata"]["name"] for one in self.api.items(RESOURCES + "/namespaces/default/resourceclaimtemplates")}
            needed = [template(*size) for size in set(pods.values())]
            for one in needed:
                if one["metadata"]["name"] not in have:
                    self.api.call("POST", RESOURCES + "/namespaces/default/resourceclaimtemplates", one)
        self.api.each(lambda name: self.api.call("POST", PODS, pod(name, *pods[name], self.mode)), pods)

    def remove(self, names):
        self.api.each(lambda name: self.api.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0"), names)
        with self.lock:
            for name in names:
                where = self.bound.pop(name, None)
                self.waiting.discard(name)
                self.refused.discard(name)
                if where:
                    self.nodes[where[0]].release(name)
                del self.asked[name]
        self.publish()

    def publish(self):
        """In mode plugin the nodes grant what they were sent, and say what they have left."""
        if self.mode == "dra":
            return
        with self.lock:
            for name, (where, _) in self.bound.items():
                its = self.nodes[where]
                if name not in its.held:
                    if its.grant(name, *self.asked[name]):
                        self.refused.discard(name)
                    else:
                        self.refused.add(name)
                        self.ever_refused.add(name)
        self.api.each(lambda its: its.publish(self.api), [its for its in self.nodes.values() if not its.is_published])

    def settle(self, seconds):
        """Waits until the scheduler has decided about every pod."""
        end = time.monotonic() + seconds
        while True:
            self.publish()
            with self.lock:
                open_ones = [name for name in self.asked if name not in self.bound and name not in self.waiting]
            if not open_ones:
                return
            if time.monotonic() > end:
                raise Fault(f"not within {seconds} s: a decision about {len(open_ones)} pods, such as {open_ones[0]}")
            time.sleep(0.05)

    def used(self):
        """By GPU in use: GiB and percent given out; and what is wrong with it."""
        gpus, faults = {}, []
        if self.mode == "plugin":
            given = [(its.name, number, amounts[0] * CHUNK / GIB, amounts[1]) for its in self.nodes.values() for number, amounts in its.held.values()]
        else:
            given = []
            for claim in self.api.items(CLAIMS):
                owner = claim["metadata"]["ownerReferences"][0]["name"]
                for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", []):
                    consumed = result["consumedCapacity"]
                    amounts = quantity(consumed["memory"]), int(consumed["cores"])
                    given.append((result["pool"], result["device"], *amounts))
                    if owner in self.asked and amounts != self.asked[owner]:
                        faults.append(f"{owner} asked for {self.asked[owner]} and saw {amounts}")
        for where, number, gib, percent in given:
            has = gpus.setdefault((where, number), [0, 0])
            has[0] += gib
            has[1] += percent
        faults += [f"{gpu} is given out beyond all of it: {has}" for gpu, has in gpus.items() if has[0] > GPU_GIB or has[1] > 100]
        return gpus, faults

    def close(self):
        """Removes all of it; claims that stay are faults."""
        self.is_over = True
        self.remove(list(self.asked))
        end, left = time.monotonic() + 120, ["?"]
        while left and time.monotonic() < end:
            left = self.api.items(CLAIMS)
            time.sleep(0.5 if left else 0)
        self.api.call("DELETE", RESOURCES + f"/namespaces/default/resourceclaimtemplates?labelSelector={LABEL}")
        self.api.call("DELETE", RESOURCES + f"/resourceslices?labelSelector={LABEL}")
        self.api.call("DELETE", f"{NODES}?labelSelector={LABEL}")
        return [f"{len(left)} claims are left, such as {left[0]['metadata']['name']}"] if left else []


def quantity(text):
    """GiB of such a text."""
    for suffix, shift in (("Mi", 10), ("Gi", 0)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) / (1 << shift)
    return int(text) / GIB
