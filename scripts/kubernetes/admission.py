"""Scenarios of admission: what the webhook makes of pods, what happens while it is away, and the policy for clusters without one."""
import json

from claim_changes import template
from cluster import NAMESPACE, Fault, container, deployment, pod, states

NAME = "vcuda-cluster"
GIB = 1 << 30

# Name, limits as an author or another system writes them, or annotations for KAI Scheduler, what the container then sees of each GPU: bytes,
# thousandths of time.
WRITTEN = [
    ("size", {"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}, [(4 * GIB, 300)]),
    ("memory-alone", {"vcuda.io/memory": "2Gi"}, [(2 * GIB, 1000)]),
    ("two-gpus", {"vcuda.io/gpu": "2", "vcuda.io/memory": "2Gi", "vcuda.io/cores": "20"}, [(GIB, 100)] * 2),
    ("hami", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "2048", "nvidia.com/gpucores": "30"}, [(2 * GIB, 300)]),
    ("volcano", {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "1024", "volcano.sh/vgpu-cores": "20"}, [(GIB, 200)] * 2),
    ("gaia", {"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "16"}, [(4 * GIB, 300)]),
    ("kai", {"gpu-memory": "2048"}, [(2 * GIB, 1000)]),
    ("nvfractions", {"nvidia.com/container.app.gpu-memory.limit": "3Gi", "nvidia.com/container.app.gpu-compute.portion": "0.25"}, [(3 * GIB, 250)]),
]
PRIVILEGED = {"securityContext": {"privileged": True}}
DEFEATS = "kubectl label namespace NAME vcuda.io/unconfined=true"

# Name, container, annotations, words of the refusal.
REFUSED = [
    ("uneven", container(gpu=2, memory=17, cores=30), {}, "does not divide by 2: ask for 16 or 18"),
    ("percent", container(memory=16, cores=101), {}, "vcuda.io/cores: 101 is more than 1 of 100 percent"),
    ("policy", container(), {"vcuda.io/policy": "fast"}, "write fixed, burst or best-effort"),
    ("name", container(), {"vcuda.io/polcy": "burst"}, "there is none of this name"),
    ("more", container(), {"vcuda.io/memory": "8Gi"}, "annotations only lower"),
    ("bound", container(), {"vcuda.io/priority": "high"}, "priority high: pods of namespace confined may have at most normal; the bound is"),
    ("privileged", container(**PRIVILEGED), {}, DEFEATS),
    ("variable", container(gpu=0, memory=0, cores=0, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]), {}, DEFEATS),
]
# Parameters of a claim, and words of the refusal.
REFUSED_CLAIMS = [
    ({"priority": "high"}, "request gpu: priority high: pods of namespace confined may have at most normal; the bound is"),
    ({"weight": 1001}, "request gpu: weight 1001: pods of namespace confined may have at most 1000; the bound is"),
    ({"polcy": "burst"}, "parameters of driver vcuda.io: unknown field `polcy`"),
]


CONFINED = "confined"


def written(name, asked):
    if any(key.startswith(("gpu-", "nvidia.com/container.")) for key in asked):
        return pod(name, container(gpu=0, memory=0, cores=0), asked, schedulerName="kai-scheduler")
    return pod(name, container(resources={"limits": asked}))


def refusal(cluster, one):
    """The API server's answer to a pod that it does not make; empty if it makes it."""
    try:
        cluster.create([one], as_written=True)
    except Fault as fault:
        return str(fault)
    return ""


def set_failure_policy(cluster, policy):
    """What the API server does with pods while the webhook does not answer."""
    for kind in ("mutating", "validating"):
        whole = f"{kind}webhookconfiguration/{NAME}"
        found = json.loads(cluster.kubectl("get", whole, "-o", "json"))
        change = [{"op": "replace", "path": f"/webhooks/{place}/failurePolicy", "value": policy} for place in range(len(found["webhooks"]))]
        cluster.kubectl("patch", whole, "--type=json", "-p", json.dumps(change))


def scale(cluster, replicas):
    """Seconds until so many replicas answer."""
    cluster.kubectl("-n", NAMESPACE, "scale", f"deployment/{NAME}", f"--replicas={replicas}")
    ready = ("-n", NAMESPACE, "get", "pods", "-l", f"app.kubernetes.io/name={NAME}", "-o", "json")

    def are_there():
        found = json.loads(cluster.kubectl(*ready))["items"]
        conditions = [each for one in found for each in one["status"].get("conditions", [])]
        answering = [each for each in conditions if (each["type"], each["status"]) == ("Ready", "True")]
        return len(found) == len(answering) == replicas

    return cluster.wait(180, f"{replicas} replicas of {NAME}", are_there)


def as_written(cluster):
    """Pods of all kinds of authors run: how many saw the limits that were meant, and faults."""
    cluster.create([written(name, limits) for name, limits, _ in WRITTEN], as_written=True)
    cluster.wait_phase([name for name, _, _ in WRITTEN], {"Running"})
    faults, right = [], 0
    for name, _, wanted in WRITTEN:
        cluster.wait(60, f"{name} says its limits", lambda: cluster.seen(name))
        seen = [(total, share) for _, total, share in cluster.seen(name)]
        right += seen == wanted
        faults += [] if seen == wanted else [f"{name} sees {seen}, not {wanted}"]
    return right, faults


def refusals(cluster):
    """Pods that are refused when they are made: how many, and faults."""
    refused, faults = 0, []
    for name, one, annotations, words in REFUSED:
        made = pod("bad-" + name, one, annotations)
        made["metadata"]["namespace"] = CONFINED
        said = refusal(cluster, made)
        refused += words in said
        faults += [] if words in said else [f"bad-{name} is not refused with {words!r}: {said!r}"]
    return refused, faults


def refused_claims(cluster):
    """Templates and claims that are refused when they are made: how many, and faults."""
    refused, faults = 0, []
    for parameters, words in REFUSED_CLAIMS:
        made = template("beyond", 1, 1, parameters)
        alone = made | {"kind": "ResourceClaim", "spec": made["spec"]["spec"]}
        for one in (made, alone):
            one["metadata"] = {"name": "beyond", "namespace": CONFINED}
            said = refusal(cluster, one)
            refused += words in said
            faults += [] if words in said else [f"{one['kind']} with {parameters} is not refused with {words!r}: {said!r}"]
    within = template("within", 1, 1, {"priority": "low"})
    within["metadata"]["namespace"] = CONFINED
    said = refusal(cluster, within)
    return refused, faults + ([f"a template within the bounds is refused: {said}"] if said else [])


def away(cluster):
    """Both failure policies while no replica is there, and the return."""
    faults = []
    scale(cluster, 0)
    said = refusal(cluster, written("away", {"vcuda.io/memory": "4Gi"}))
    faults += [] if "failed calling webhook" in said else [f"Fail, and the webhook is away: {said!r}"]
    plain = refusal(cluster, pod("plain", container(gpu=0, memory=0, cores=0)))
    faults += [f"a pod without a share waits for the webhook: {plain}"] if plain else []
    set_failure_policy(cluster, "Ignore")
    # The API server hears of it a moment later.
    passing = written("passing", {"vcuda.io/gpu": "1", "vcuda.io/memory": "16", "vcuda.io/cores": "30"})
    cluster.wait(30, "Ignore lets pods pass as they are", lambda: not refusal(cluster, passing))
    if cluster.mode == "plugin":
        cluster.wait_phase(["passing"], {"Running"})
        faults += cluster.wrong_limits([passing])
    else:
        # Counts, of which a node with claims has none.
        cluster.wait(60, "the pod waits", lambda: "Insufficient vcuda.io/gpu" in states(cluster.pods()["passing"])[1])
    set_failure_policy(cluster, "Fail")
    scale(cluster, 2)
    back = written("back", {"vcuda.io/memory": "4Gi"})
    return cluster.wait(60, "the webhook answers again", lambda: not refusal(cluster, back)), faults


def admission(cluster):
    """Pods as authors write them become counts; what defeats the limits is refused; the webhook away, by both failure policies."""
    # The test pods mount the simulated machine's folder, which lies below /run/vcuda: other namespaces may not.
    cluster.kubectl("label", "--overwrite", "namespace", "default", "vcuda.io/unconfined=true")
    cluster.kubectl("create", "namespace", CONFINED)
    cluster.chart("cluster.enabled=true")
    try:
        scale(cluster, 2)
        right, faults = as_written(cluster)
        refused, wrong = refusals(cluster)
        faults += wrong
        again, wrong = away(cluster)
    finally:
        cluster.kubectl("label", "namespace", "default", "vcuda.io/unconfined-")
        cluster.remove_all(CONFINED)
        cluster.kubectl("delete", "namespace", CONFINED)
        remove(cluster)
    figures = {"as written": f"{right} of {len(WRITTEN)}", "refused": f"{refused} of {len(REFUSED)}", "answers again after": f"{again:.1f} s"}
    return figures, faults + wrong


def made_templates(cluster):
    """Templates that the webhook has made, by the kind of their owner."""
    found = json.loads(cluster.kubectl("get", "resourceclaimtemplates", "-l", f"app.kubernetes.io/managed-by={NAME}", "-o", "json"))["items"]
    return [one["metadata"].get("ownerReferences", [{"kind": "none"}])[0]["kind"] for one in found]


def admitted_claims(cluster):
    """Pods as authors write them become claims; the template of a controller's pods is one, and goes with the controller."""
    cluster.kubectl("label", "--overwrite", "namespace", "default", "vcuda.io/unconfined=true")
    cluster.kubectl("create", "namespace", CONFINED)
    cluster.chart("cluster.enabled=true")
    try:
        scale(cluster, 2)
        cluster.create([deployment("kept", 3, written("", {"vcuda.io/memory": "4Gi", "vcuda.io/cores": "30"}))], as_written=True)
        cluster.wait(180, "three replicas run", lambda: [states(one)[0] for one in cluster.pods().values()] == ["Running"] * 3)
        faults = [] if made_templates(cluster) == ["ReplicaSet"] else [f"templates of three replicas: {made_templates(cluster)}"]
        for name in cluster.pods():
            cluster.wait(60, f"{name} says its limits", lambda: cluster.seen(name))
            seen = [(total, share) for _, total, share in cluster.seen(name)]
            faults += [] if seen == [(4 * GIB, 300)] else [f"a replica sees {seen}"]
        cluster.kubectl("delete", "deployment", "kept", "--wait=false")
        gone = cluster.wait(60, "the template has gone with its controller", lambda: not made_templates(cluster))
        dry = json.dumps(written("dry", {"vcuda.io/memory": "1Gi"}))
        cluster.kubectl("create", "--dry-run=server", "-f", "-", given=dry)
        faults += [f"a dry run made templates: {made_templates(cluster)}"] if made_templates(cluster) else []
        right, wrong = as_written(cluster)
        refused, more = refusals(cluster)
        refused_too, beyond = refused_claims(cluster)
        again, last = away(cluster)
    finally:
        cluster.kubectl("label", "namespace", "default", "vcuda.io/unconfined-")
        cluster.remove_all(CONFINED)
        cluster.kubectl("delete", "namespace", CONFINED)
        remove(cluster)
    figures = {"as written": f"{right} of {len(WRITTEN)}", "refused": f"{refused} of {len(REFUSED)}",
               "claims and templates refused": f"{refused_too} of {2 * len(REFUSED_CLAIMS)}",
               "a controller's template gone after": f"{gone:.1f} s", "answers again after": f"{again:.1f} s"}
    return figures, faults + wrong + more + beyond + last


# As REFUSED, in the words of the policy.
AGAINST_POLICY = [
    ("uneven", container(gpu=2, memory=17, cores=30), "have to divide by vcuda.io/gpu"),
    ("percent", container(memory=16, cores=101), "vcuda.io/cores is more than 100 percent of each GPU"),
    ("size", container(memory="4Gi"), "takes no size such as 4Gi"),
    ("no-cores", container(cores=0), "a container with a share asks for all three"),
    ("privileged", container(**PRIVILEGED), "neither privileged"),
    ("variable", container(gpu=0, memory=0, cores=0, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]), "around all limits"),
    ("power", container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "no powers beyond the baseline"),
    ("folder", container(), "a hostPath reaches GPUs or limits"),
]


# As AGAINST_POLICY: chunks of memory that may be suspended, and percent of time.
SUSPENDABLE_AGAINST_POLICY = [
    ("turns-size", "4Gi", 5, "takes no size such as 4Gi"),
    ("turns-no-cores", "16", 0, "a container with a share asks for all three"),
]


def suspendable(name, memory, cores):
    """A pod that asks for memory that may be suspended in place of vcuda.io/memory."""
    one = container(cores=cores)
    one["resources"]["limits"].pop("vcuda.io/memory")
    one["resources"]["limits"]["vcuda.io/suspendable-memory"] = memory
    return pod(name, one)


def policy_on_suspendable(cluster):
    """The policy where suspendable pods have memory of their own: how many pods are refused, and faults."""
    cluster.chart("policy.enabled=true", "admission.suspendableOvercommit=1.75", "namespaces.default.suspendable=true")
    good = suspendable("turns-good", "16", 5)
    # Until the API server has compiled the changed policy, it takes the pod for one without memory, and refuses it.
    cluster.wait(60, "a suspendable pod is accepted", lambda: refusal(cluster, good) == "")
    refused, faults = 0, []
    for name, memory, cores, words in SUSPENDABLE_AGAINST_POLICY:
        said = refusal(cluster, suspendable(name, memory, cores))
        refused += words in said
        faults += [] if words in said else [f"{name} is not refused with {words!r}: {said!r}"]
    cluster.wait_phase(["turns-good"], {"Running"})
    return refused, faults


def policy(cluster):
    """A cluster without the webhook: the API server itself refuses what its ValidatingAdmissionPolicy forbids."""
    cluster.kubectl("label", "--overwrite", "namespace", "default", "vcuda.io/unconfined=true")
    cluster.kubectl("create", "namespace", CONFINED)
    cluster.chart("policy.enabled=true")
    try:
        first = pod("bad-uneven", AGAINST_POLICY[0][1])
        # The API server compiles a new policy a moment later.
        cluster.wait(60, "the policy holds", lambda: AGAINST_POLICY[0][2] in refusal(cluster, first))
        refused, faults = 0, []
        for name, one, words in AGAINST_POLICY:
            made = pod("bad-" + name, one)
            made["metadata"]["namespace"] = CONFINED
            if name != "folder":
                made["spec"]["volumes"] = [{"name": "machine", "emptyDir": {}}]
            said = refusal(cluster, made)
            refused += words in said
            faults += [] if words in said else [f"bad-{name} is not refused with {words!r}: {said!r}"]
        good = pod("good", container())
        cluster.create([good])
        cluster.wait_phase(["good"], {"Running"})
        faults += cluster.wrong_limits([good])
        more, wrong = policy_on_suspendable(cluster)
        refused, faults = refused + more, faults + wrong
    finally:
        cluster.kubectl("label", "namespace", "default", "vcuda.io/unconfined-")
        cluster.remove_all(CONFINED)
        cluster.kubectl("delete", "namespace", CONFINED)
        cluster.kubectl("delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", "--all")
        cluster.chart()
    return {"refused": f"{refused} of {len(AGAINST_POLICY) + len(SUSPENDABLE_AGAINST_POLICY)}"}, faults


def remove(cluster):
    """The chart without it. `kubectl apply` leaves what a former rendering had."""
    label = ("-l", "app.kubernetes.io/component=cluster")
    cluster.kubectl("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", *label)
    cluster.kubectl("-n", NAMESPACE, "delete", "deployments,services,secrets,configmaps,serviceaccounts,poddisruptionbudgets", *label)
    cluster.chart()
