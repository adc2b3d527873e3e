"""What pods with claims follow while they run: annotations, ill GPUs, a change of mode; and what their claims say of it."""
import json, subprocess, time

from cluster import NAMESPACE, Fault, container, pod, states

GIB = 1 << 30


def template(name, memory, cores, parameters=None):
    """A template of claims with one share of one GPU: memory in GiB, cores in percent."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "vcuda.io",
                                          "capacity": {"requests": {"memory": f"{memory}Gi", "cores": str(cores)}}}}
    devices = {"requests": [request]}
    if parameters:
        opaque = {"driver": "vcuda.io", "parameters": {"apiVersion": "vcuda.io/v1alpha1", "kind": "VcudaConfig"} | parameters}
        devices["config"] = [{"requests": ["gpu"], "opaque": opaque}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}


def user(name, template_name, **more):
    """A pod whose container uses a claim of this template."""
    one = container(**more) | {"resources": {"claims": [{"name": "gpu"}]}}
    return pod(name, one, restartPolicy="Always", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template_name}])


def claim_of(cluster, name):
    """The claim that was made for a pod, of the template."""
    made = cluster.pods()[name]["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    return json.loads(cluster.kubectl("get", "resourceclaim", made, "-o", "json"))


def shown(cluster, name):
    """What the status of a pod's claim says of its one share."""
    [entry] = claim_of(cluster, name)["status"]["devices"]
    return entry


def resized(cluster):
    """A pod with a claim is given less and more memory by its annotation, never more than was allocated; the claim's status follows."""
    cluster.create([template("resized", 4, 30), user("resized", "resized", run="poll_limit")])
    cluster.wait_phase(["resized"], {"Running"})
    cluster.wait(60, "the container says its limits", lambda: cluster.seen("resized"))
    cluster.wait(30, "the claim has a status", lambda: shown(cluster, "resized"))
    entry, took, faults = shown(cluster, "resized"), [], []
    says = [entry["data"].get(key) for key in ("memory", "cores", "policy")] + [entry["conditions"][0]["status"]]
    if says != ["4Gi", "30", "fixed", "True"] or entry["data"]["uuid"] != cluster.seen("resized")[0][0]:
        faults.append(f"the claim's status is {entry}")
    for gib in (2, 4, 1):
        begun = time.time()
        cluster.kubectl("annotate", "--overwrite", "pod", "resized", f"vcuda.io/memory={gib}Gi")
        answered = time.time()
        said = lambda: [at for at, line in cluster.log("resized") if line == f"total {gib << 30}" and at > begun]
        try:
            cluster.wait(60, f"{gib} GiB are seen in the pod", said)
            took.append(max(0.0, said()[0] - answered))
            cluster.wait(30, f"the status says {gib} GiB", lambda: shown(cluster, "resized")["data"]["memory"] == f"{gib}Gi")
        except Fault as fault:
            faults.append(str(fault))
    cluster.kubectl("annotate", "--overwrite", "pod", "resized", "vcuda.io/memory=8Gi")
    words = "annotations only lower"

    def told():
        found = json.loads(cluster.kubectl("get", "events", "--field-selector", "involvedObject.name=resized", "-o", "json"))["items"]
        return any(event["reason"] == "VcudaAnnotationRefused" and words in event["message"] for event in found)

    try:
        cluster.wait(60, f"an event says: {words}", told)
    except Fault as fault:
        faults.append(str(fault))
    cluster.remove_all()
    return max(took, default=0), faults


def alone(cluster):
    """A claim that stands alone follows its own annotation; after its pod's end it has no status of a share."""
    claim = template("alone", 4, 30) | {"kind": "ResourceClaim"}
    claim["spec"] = claim["spec"]["spec"]
    one = pod("alone", container(run="poll_limit") | {"resources": {"claims": [{"name": "gpu"}]}},
              resourceClaims=[{"name": "gpu", "resourceClaimName": "alone"}])
    cluster.create([claim, one])
    cluster.wait_phase(["alone"], {"Running"})
    cluster.kubectl("annotate", "resourceclaim", "alone", "vcuda.io/memory=1Gi")
    faults = []
    try:
        cluster.wait(30, "1 GiB is seen in the pod", lambda: f"total {GIB}" in cluster.text("alone"))
    except Fault as fault:
        faults.append(str(fault))
    cluster.remove_all()
    status = lambda: json.loads(cluster.kubectl("get", "resourceclaim", "alone", "-o", "json")).get("status", {})
    try:
        cluster.wait(60, "the claim has no status of a share any more", lambda: not status().get("devices"))
    except Fault as fault:
        faults.append(str(fault))
    cluster.kubectl("delete", "resourceclaim", "alone")
    return faults


def whole(cluster):
    """A claim of whole GPUs: one alone, all of its memory, without the shim."""
    claims = template("whole", 1, 1)
    claims["spec"]["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "vcuda.io-whole"}
    words = "no limits here"
    one = pod("whole", container() | {"command": ["sh", "-c", f"[ -e /etc/vcuda ] || echo {words}; sleep 100000"],
                                      "resources": {"claims": [{"name": "gpu"}]}},
              resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "whole"}])
    cluster.create([claims, one])
    faults = []
    try:
        cluster.wait_phase(["whole"], {"Running"})
        cluster.wait(60, f"the container says: {words}", lambda: words in cluster.text("whole"))
        cluster.wait(30, "the claim says that it is whole", lambda: shown(cluster, "whole")["data"].get("whole") is True)
    except Fault as fault:
        faults.append(f"{fault}; {states(cluster.pods()['whole'])}")
    cluster.remove_all()
    return faults


def lost_files(cluster):
    """The content of /run/cdi is lost: it is there again, and the container starts again with its limits. Seconds of that, and faults."""
    cluster.create([template("lost", 2, 10), user("lost", "lost")])
    cluster.wait_phase(["lost"], {"Running"})
    cluster.wait(60, "the container says its limits", lambda: cluster.seen("lost"))
    limits, faults = cluster.seen("lost"), []
    status = lambda: cluster.pods()["lost"]["status"]["containerStatuses"][0]
    try:
        cluster.node("run", "sh", "-c", "rm -rf /run/cdi/*")
        seconds = cluster.wait(30, "the specification is there again", lambda: "claim" in cluster.node("run", "ls", "/run/cdi"))
        cluster.node("run", "pkill", "-KILL", "-x", "sleep")
        cluster.wait(120, "the container runs again", lambda: status()["restartCount"] > 0 and "running" in status()["state"])
        cluster.wait(60, "it has its limits", lambda: cluster.seen("lost") == limits)
    except Fault as fault:
        seconds, faults = 0.0, [f"{fault}; {cluster.said('lost')}"]
    cluster.remove_all()
    return seconds, faults


def ill(cluster):
    """A GPU falls off the bus: the status of its pod says so; with NoExecute the pod is evicted. Seconds of that, and faults."""
    file, faults, seconds = "/run/vcuda/machine/faults.toml", [], 0.0

    def with_lost_gpu(look):
        [(uuid, _, _)] = cluster.seen("ill")
        try:
            cluster.node("run", "sh", "-c", f"echo 'lost = [\"{uuid}\"]' >{file}.new && mv {file}.new {file}")
            return look()
        except Fault as fault:
            faults.append(f"{fault}; {cluster.pods().get('ill', {}).get('status')}"[:600])
        finally:
            cluster.node("run", "rm", "-f", file)

    cluster.create([template("ill", 1, 1), user("ill", "ill")])
    cluster.wait_phase(["ill"], {"Running"})
    cluster.wait(60, "the container says its limits", lambda: cluster.seen("ill"))
    status = lambda: json.dumps(cluster.pods()["ill"]["status"]["containerStatuses"])
    with_lost_gpu(lambda: cluster.wait(90, "the pod's status says that its GPU is ill", lambda: "Unhealthy" in status()))
    # A manager that starts beside an ill GPU is not ready: the chart is rolled out while all are well. 30 clean looks of 2 s go before.
    cluster.wait(120, "the pod's status says that its GPU is well", lambda: "Unhealthy" not in status())
    cluster.chart("dra.unhealthyEffect=NoExecute")
    seconds = with_lost_gpu(lambda: cluster.wait(120, "the pod is evicted", lambda: "ill" not in cluster.pods())) or 0.0
    cluster.remove_all()
    cluster.chart()
    return seconds, faults


def changed_mode(cluster):
    """The chart's mode is changed while claims live: the new pod says why it is not ready and takes the place of none, and a pod with a
    claim can still be deleted."""
    words = "mode plugin is refused while shares of mode dra live on this node"
    cluster.create([template("leaves", 1, 1), user("leaves", "leaves")])
    cluster.wait_phase(["leaves"], {"Running"})
    try:
        cluster.node("chart", "mode=plugin", seconds=120)
        return ["the mode was changed under pods with claims"]
    except (Fault, subprocess.TimeoutExpired):
        pass
    faults = []
    if not any(words in cluster.kubectl("-n", NAMESPACE, "logs", name, "-c", "plugin") for name in cluster.pods(NAMESPACE)):
        faults.append(f"no pod of the chart says: {words}")
    cluster.kubectl("delete", "pod", "leaves", "--wait=false")
    try:
        cluster.wait(90, "the pod is gone, as the old driver still ends its claim", lambda: "leaves" not in cluster.pods())
    except Fault as fault:
        faults.append(f"{fault}; {cluster.said('leaves')}")
    cluster.chart()
    return faults
