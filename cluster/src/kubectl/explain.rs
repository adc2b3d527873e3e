//! Why a pod does not start, and the remedy: what scheduler, kubelet, plugin, driver and manager have said of it, in the order
//! in which a person would look. No network.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::finding::Finding;
use super::no_place;
use super::shared_claim;
use super::too_large::{Largest, is_allocated};

#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    pub(crate) pod: Pod,
    /// Its events, the newest first.
    pub(crate) events: Vec<Told>,
    pub(crate) claims: Vec<ResourceClaim>,
    /// The other pods for which these are reserved.
    pub(crate) sharers: Vec<Pod>,
    /// What the cluster has at most, as far as it may be read.
    pub(crate) largest: Largest,
    /// Names of claims that there are not.
    pub(crate) missing_claims: Vec<String>,
    /// What could not be read, and why.
    pub(crate) unread: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// Texts of events, and the remedy; docs/generated/remedies.md is made of them. The first that is in the text counts.
const REMEDIES: &[(&str, &str)] = &[
    // Events of a controller, which has no pod then.
    (
        "exceeded quota:",
        "end other pods of the namespace, or have an administrator raise its ResourceQuota (kubectl describe resourcequota): the controller \
         tries again by itself",
    ),
    (
        "Job suspended",
        "a queue such as Kueue resumes it when there is room (kubectl get workloads); without one, set spec.suspend to false",
    ),
    (
        "No space left on device",
        "make room on the node in the folder that the text names: it starts by itself then",
    ),
    (
        "may not be suspended",
        "leave vcuda.io/suspendable out; or an administrator allows it: --set namespaces.TEAM.suspendable=true",
    ),
    ("has a form that this release does not know", "kubelet is newer than this release: upgrade vcuda"),
    ("it is not known whose limits are meant", "restart the node's kubelet, and report it"),
    (
        "kubelet has given it devices that",
        "wait: it starts by itself when the other container has ended (seen on a kubelet 1.36 under load)",
    ),
    (
        "processes of the container that had these devices before",
        "wait for their end; if it does not come, crictl ps on the node shows what still runs",
    ),
    ("leave one of them out", "make the pod anew, and ask for one kind of memory"),
    (
        "asks for so many different GPUs",
        "delete the pod: this is final. In a new pod write gpu: 1 and more memory and cores",
    ),
    (
        "was not written by vcuda",
        "delete the pod: this is final. Before, remove the file that the text names, or find out what writes it",
    ),
    ("has a GPU gone?", "delete the pod: this is final, as a GPU vanished before the start"),
    (
        "the CDI directory",
        "do what the text says on the node; if the pod is UnexpectedAdmissionError then, delete it",
    ),
    (
        "not attached:",
        "a container under plugin.strict found itself without its limits: the line names the broken link (docs/kubernetes.md, \"Strict containers\")",
    ),
    (
        "violates PodSecurity",
        "kubectl label namespace vcuda-system pod-security.kubernetes.io/enforce=privileged",
    ),
    (
        "insufficient quota to match these scopes",
        "the cluster wants a quota for system pods (GKE and others): set the chart's resourceQuota.create=true",
    ),
    ("RuntimeClass \"nvidia\" not found", "leave the chart's runtimeClassName empty"),
    (
        "the largest that this node has gives",
        "it can never start on that node: ask for less in a new pod, or keep it on nodes with larger GPUs (kubectl vcuda gpus)",
    ),
    (
        "vcuda: no GPU has",
        "wait: it starts by itself when a GPU has room (kubectl vcuda gpus); or ask for less",
    ),
    (
        "vcuda: not ",
        "if no node has so many GPUs (kubectl vcuda gpus), it can never start: ask for fewer in a new pod; else wait, or ask for less",
    ),
    ("vcuda: each container", "wait, or ask for less: kubectl vcuda gpus shows what each GPU has left"),
    ("resourceclaimtemplate", "make the template that the text names, in the pod's namespace"),
    (
        "cannot allocate all claims",
        "wait: it starts by itself when a GPU has room (kubectl vcuda gpus); or ask for less in a new pod",
    ),
    (
        "Insufficient vcuda.io/memory",
        "amounts of vcuda.io/memory are chunks, 16 for 4 GiB: a size is larger than any node; if it is a count, the nodes are full: wait",
    ),
    (
        "Insufficient vcuda.io/suspendable-memory",
        "no node has so many of these chunks left, or any at all (docs/suspend.md, \"Pods beyond a GPU's memory\"): wait, or ask for less",
    ),
    ("Insufficient vcuda.io/cores", "no node has as much GPU time left: wait, or ask for less"),
    (
        "Insufficient vcuda.io/gpu",
        "no node has a share left, or the plugin does not run: kubectl vcuda gpus; kubectl -n vcuda-system get pods -o wide, and the log of \
         ds/vcuda -c plugin. If it runs, the manager has no GPU, and its log says why (docs/kubernetes.md, \"No GPU on a node\")",
    ),
    (
        "untolerated taint {nvidia.com/gpu",
        "add the toleration {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}",
    ),
    ("node(s) were unschedulable", "wait, or take the node's cordon away: kubectl uncordon NODE"),
    (
        "not free on",
        "wait, or delete the pod so that it is scheduled anew; admission.placement: binpack makes it rarer",
    ),
    ("parameters of driver vcuda.io", ANEW),
    ("is less than 1 MiB", ANEW),
    ("in common and others not", ANEW),
    ("claim a share (device class vcuda.io)", ANEW),
    ("add constraints:", ANEW),
    ("device class ", "correct deviceClassName (kubectl get deviceclasses), and make template and pod anew"),
    ("annotation", "mend it in the same pod: kubectl annotate --overwrite"),
    (
        "in the manager's configuration",
        "kubectl annotate --overwrite within the bound; an administrator raises it by the chart's namespaces",
    ),
    ("does not divide by", "make the pod anew with counts that divide"),
    ("and for no ", "make the pod anew with all three counts: gpu, memory, cores"),
    (
        "unresolvable CDI devices",
        "plugin and driver write lost specifications again within seconds; if it stays so, the container runtime does not read the \
         folder of paths.cdi, that folder is full, or CDI is off: containerd 1.7 needs enable_cdi = true",
    ),
    (
        "cannot allocate unhealthy devices",
        "the plugin was not registered: delete the pod; its controller makes another",
    ),
    (
        "no manager runs here",
        "the manager of the node is down: kubectl -n vcuda-system get pods -o wide, and its log",
    ),
    (
        "the manager of",
        "the manager of the node is down: kubectl -n vcuda-system get pods -o wide, and its log",
    ),
    (
        "DRA driver vcuda.io is not registered",
        "the node's driver was away: kubelet tries again within 90 s; if it stays so, kubectl -n vcuda-system get pods -o wide",
    ),
    ("PodResources", "kubelet is slow or restarts: it recovers by itself; if not, see kubelet's log"),
    (
        "kubelet names no container that holds",
        "kubelet is slow or restarts: it recovers by itself; if not, see kubelet's log",
    ),
    (
        "it was not known within",
        "kubelet is slow or restarts: it recovers by itself; if not, see kubelet's log",
    ),
    (
        "requested device",
        "the node's driver does not know the device: kubectl -n vcuda-system logs ds/vcuda -c plugin",
    ),
    ("denied the request:", "correct the template of pod or claim: the text names what is wrong"),
];
/// Remedy for a wrong claim.
const ANEW: &str = "a claim cannot be corrected: write it right, then kubectl replace --force -f a file with template and pod";
/// Remedy for what has none of its own.
const NONE: &str = "docs/kubernetes.md, \"When something is wrong\"";
/// The same for what plugin and driver say, which name the remedy themselves.
const NAMED: &str = "the text names what to do; docs/kubernetes.md, \"When something is wrong\"";
/// Frame that kubelet and the scheduler put around an answer by gRPC.
const FRAME: &str = "desc = ";
/// Reason of the scheduler's events, which are past once the pod has a node.
const UNSCHEDULED: &str = "FailedScheduling";
/// Word of the remedies that say to wait.
const WAIT: &str = "wait";
/// Reasons of events that are no fault.
const HARMLESS: [&str; 7] =
    ["Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "TriggeredScaleUp"];
/// Findings that are shown at most: old events repeat the same.
const MOST: usize = 5;

/// Reasons why a pod does not run as it should, the most telling first; none if it does.
pub(crate) fn findings(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = waiting(&evidence.pod);
    findings.extend(ended(&evidence.pod));
    let phase = phase(&evidence.pod);
    let is_running = findings.is_empty() && phase == "Running" && !has_failed(&evidence.pod);
    let is_over = phase == "Succeeded" || phase == "Failed";
    let is_scheduled = evidence.pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    for told in &evidence.events {
        let is_ours = told.reason.starts_with("Vcuda");
        let is_past = ((is_running || is_over) && !is_ours) || (is_scheduled && told.reason == UNSCHEDULED);
        if HARMLESS.contains(&told.reason.as_str()) || is_past {
            continue;
        }
        let reason = core(&told.message);
        if !findings.iter().any(|finding| finding.reason == reason) {
            findings.push(Finding { source: told.reason.clone(), remedy: remedy(&told.message), reason });
        }
    }
    if phase == "Pending" {
        let waiting = evidence.claims.iter().filter(|claim| !is_allocated(claim));
        findings.extend(waiting.filter_map(no_place::selected));
    }
    // An event says more than the state that it led to.
    if phase == "Pending" && !findings.iter().any(|finding| finding.source == UNSCHEDULED) {
        findings.extend(evidence.claims.iter().filter_map(unallocated));
    }
    // A reader stops at the first remedy that says to wait.
    findings.sort_by_key(|finding| match finding.remedy.as_str() {
        NONE => 3,
        NAMED => 1,
        remedy if remedy.starts_with(WAIT) => 2,
        _ => 0,
    });
    if phase == "Pending" {
        findings.splice(..0, evidence.missing_claims.iter().map(|name| missing(name)));
    }
    findings.splice(..0, shared_claim::differing(&evidence.pod, &evidence.claims, &evidence.sharers));
    findings.splice(..0, deletion(evidence));
    let mut exceeded = evidence.largest.exceeded_by(&evidence.pod, &evidence.claims);
    exceeded.extend(evidence.largest.unoffered_to(&evidence.pod));
    if phase == "Pending" && !exceeded.is_empty() {
        findings.retain(|finding| !finding.remedy.contains(WAIT));
        findings.splice(..0, exceeded);
    }
    findings.truncate(MOST);
    findings
}

pub(crate) fn phase(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
    phase.unwrap_or_else(|| "Pending".to_owned())
}

/// What states of containers and of the pod tell.
fn waiting(pod: &Pod) -> Vec<Finding> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let finding = |source: &str, message: &str| {
        let reason = core(message);
        Finding { source: source.to_owned(), remedy: remedy(message), reason }
    };
    let of_pod =
        status.message.iter().map(|message| finding(status.reason.as_deref().unwrap_or("pod"), message));
    let containers =
        status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let of_containers = containers.filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        // Not a fault by themselves.
        if matches!(reason, "ContainerCreating" | "PodInitializing") {
            return None;
        }
        Some(finding(reason, waiting.message.as_deref().unwrap_or(reason)))
    });
    of_pod.chain(of_containers).collect()
}

/// Containers that ended the pod.
fn ended(pod: &Pod) -> Vec<Finding> {
    if phase(pod) != "Failed" {
        return Vec::new();
    }
    let statuses =
        pod.status.iter().flat_map(|status| [&status.init_container_statuses, &status.container_statuses]);
    let containers = statuses.flat_map(|statuses| statuses.iter().flatten());
    let of_container = |container: &ContainerStatus| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        (terminated.exit_code != 0).then(|| Finding {
            source: "container".to_owned(),
            reason: format!("container {} ended with status {}", container.name, terminated.exit_code),
            remedy: format!("kubectl logs POD -c {} shows what it said", container.name),
        })
    };
    containers.filter_map(of_container).collect()
}

fn missing(claim: &str) -> Finding {
    Finding {
        source: "claim".to_owned(),
        reason: format!("there is no claim {claim}"),
        remedy: "make it in the pod's namespace, or correct resourceClaimName in a new pod".to_owned(),
    }
}

/// Whether a container has ended with an error, and was not started again yet.
fn has_failed(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let mut ended = containers.filter_map(|container| container.state.as_ref()?.terminated.as_ref());
    ended.any(|terminated| terminated.exit_code != 0)
}

/// A pod that is being deleted has no event that says for what it waits.
fn deletion(evidence: &Evidence) -> Option<Finding> {
    let is_waiting = evidence.pod.metadata.deletion_timestamp.is_some() && !evidence.claims.is_empty();
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let is_beside = |sharer: &&Pod| phase(sharer) == "Running" && node(sharer) == node(&evidence.pod);
    if let Some(sharer) = evidence.sharers.iter().find(is_beside).filter(|_| is_waiting) {
        let name = sharer.metadata.name.as_deref().unwrap_or_default();
        return Some(Finding {
            source: "deletion".to_owned(),
            reason: format!("it is being deleted, and shares a claim with pod {name}, which runs"),
            remedy: format!(
                "if kubelet (before 1.37) wants to undo that claim, it ends when {name} has ended (kubernetes#140212)"
            ),
        });
    }
    is_waiting.then(|| Finding {
        source: "deletion".to_owned(),
        reason: "it is being deleted".to_owned(),
        remedy: "its claims end through the node's driver; if that is away: kubectl -n vcuda-system get pods -o wide".to_owned(),
    })
}

fn unallocated(claim: &ResourceClaim) -> Option<Finding> {
    (!is_allocated(claim)).then(|| Finding {
        source: "claim".to_owned(),
        reason: format!("claim {} is not allocated", claim.metadata.name.as_deref().unwrap_or_default()),
        remedy: "wait: the scheduler allocates it when a GPU has room (kubectl vcuda gpus, kubectl get resourceslices)".to_owned(),
    })
}

/// A message without the frame that kubelet puts around the plugin's words.
fn core(message: &str) -> String {
    let inside = message.rsplit_once(FRAME).map_or(message, |(_, inside)| inside);
    inside.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn remedy(message: &str) -> String {
    let found = REMEDIES.iter().find(|(text, _)| message.contains(text));
    let unknown = if message.contains(FRAME) { NAMED } else { NONE };
    found.map_or(unknown, |(_, remedy)| remedy).to_owned()
}

#[cfg(test)]
mod tests;
