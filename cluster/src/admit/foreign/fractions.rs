//! Fractions by NVIDIA's own names (docs/generated/migration.md): annotations of KAI Scheduler, Run:ai and NvFractions, and the
//! variables by which NVIDIA's container toolkit has the driver limit a container.
//!
//! Where a limit and a request differ, the limit counts: no memory here is promised twice.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use vcuda_quota::pods::quantity;

use super::super::pod;
use super::super::refusal::{Refusal, RequestError};
use super::super::share::whole;
use super::systems::MIB;
use super::{Memory, Ours, WHOLE_PPM};

/// Annotation for one container: this, its name, and one of the endings below.
const OF_CONTAINER: &str = "nvidia.com/container.";
/// What asks for a part of a GPU.
const ASKING: [&str; 3] = ["gpu-memory.request", "gpu-memory.limit", "gpu-compute.portion"];
const OTHERS: [&str; 2] = ["gpu-compute.mode", "gpus.devices"];
/// Annotations that ask for the container that [`CONTAINER`] names, else for the first one.
const ASKING_OF_POD: [&str; 4] = ["gpu-fraction", "gpu-fraction.limit", "gpu-memory", "gpu-memory.limit"];
const OTHERS_OF_POD: [&str; 3] = [NUMBER, CONTAINER, "kai.scheduler/gpu-compute-sharing-mode"];
/// What KAI Scheduler's webhook makes of `gpu-fraction.limit`: this, the container's name, and the ending.
const LIMIT_OF_CONTAINER: (&str, &str) = ("kai.scheduler/container.", ".gpu-memory.portion.limit");
const NUMBER: &str = "gpu-fraction-num-devices";
const CONTAINER: &str = "gpu-fraction-container-name";
/// Schedulers that read the annotations.
pub(super) const SCHEDULERS: [&str; 2] = ["kai-scheduler", "runai-scheduler"];
/// Made by the webhook of KAI Scheduler or Run:ai. The container waits for a ConfigMap that only their binder writes.
const PREPARED: &str = "runai/shared-gpu-configmap";

/// The limit and the request of NVIDIA's container toolkit (MiB on each GPU).
pub(super) const VARIABLES: [&str; 2] = ["NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"];

/// What a pod's annotations ask for one of its containers.
pub(super) struct Fraction {
    pub(super) container: String,
    /// An annotation that asks.
    pub(super) mark: String,
    pub(super) ours: Ours,
}

/// The annotations, and the container that they are for.
struct Asked {
    annotations: BTreeMap<String, String>,
    container: String,
}

impl Fraction {
    pub(super) fn asked(pod: &Value) -> Result<Option<Self>, Refusal> {
        let mut annotations = pod::annotations(pod);
        if !is_theirs(pod) {
            annotations.retain(|name, _| !is_of_pod(name));
        }
        let asks = |name: &str| ASKING_OF_POD.contains(&name) || asking(name).is_some();
        let Some(mark) = annotations.keys().find(|name| asks(name)).cloned() else {
            return Ok(None);
        };
        if annotations.contains_key(PREPARED) {
            return Err(Refusal::Prepared(PREPARED));
        }
        let container = container(pod, &annotations, &mark)?;
        let asked = Asked { annotations, container };
        let ours = asked.ours(&mark);
        let ours = ours.map_err(|error| Refusal::Container(asked.container.clone(), error))?;
        Ok(Some(Self { container: asked.container, mark, ours }))
    }
}

impl Asked {
    fn ours(&self, mark: &str) -> Result<Ours, RequestError> {
        let gpus = match self.annotations.get(NUMBER) {
            Some(number) => whole((NUMBER.to_owned(), number.clone()))?.max(1),
            None => 1,
        };
        let limit = match (self.size("gpu-memory.limit")?, self.size_of_pod("gpu-memory.limit")?) {
            (None, None) => match self.part(&limit_of_container(&self.container))? {
                None => self.part("gpu-fraction.limit")?,
                limit => limit,
            },
            (own, of_pod) => own.or(of_pod),
        };
        let of_pod =
            self.annotations.get("gpu-memory").map(|text| mebibytes("gpu-memory", text)).transpose()?;
        let request = match (self.size("gpu-memory.request")?, of_pod) {
            (None, None) => self.part("gpu-fraction")?,
            (own, of_pod) => own.or(of_pod),
        };
        let portion = match self.part_of(&self.own("gpu-compute.portion"))? {
            None => self.part_of("gpu-fraction")?,
            portion => portion,
        };
        // Whole percents, so many that the parts of one GPU fit on it.
        let cores = portion.map(|ppm| (ppm / 10_000).max(1).saturating_mul(gpus));
        Ok(Ours { gpus, memory: memory(mark, limit, request)?, cores, priority: None })
    }

    /// Name of an annotation for the container alone.
    fn own(&self, ending: &str) -> String {
        format!("{OF_CONTAINER}{}.{ending}", self.container)
    }

    fn size(&self, ending: &str) -> Result<Option<Memory>, RequestError> {
        self.size_of_pod(&self.own(ending))
    }

    fn size_of_pod(&self, name: &str) -> Result<Option<Memory>, RequestError> {
        let Some(text) = self.annotations.get(name) else {
            return Ok(None);
        };
        let bytes = quantity::parse(text).ok().filter(|bytes| *bytes >= MIB);
        let bytes = bytes.ok_or_else(|| RequestError::NoSize(name.to_owned(), text.clone()))?;
        Ok(Some(Memory::Each(bytes)))
    }

    fn part(&self, name: &str) -> Result<Option<Memory>, RequestError> {
        Ok(self.part_of(name)?.map(|ppm| Memory::Part("gpu-fraction", ppm)))
    }

    /// A part of a GPU, such as 0.5 (millionths).
    fn part_of(&self, name: &str) -> Result<Option<u64>, RequestError> {
        let Some(text) = self.annotations.get(name) else {
            return Ok(None);
        };
        let ppm = quantity::parse(&format!("{text}e6")).ok().filter(|ppm| (1..=WHOLE_PPM).contains(ppm));
        ppm.map(Some).ok_or_else(|| RequestError::NoPart(name.to_owned(), text.clone()))
    }
}

/// The container and the ending of an annotation for one container.
fn of_container(name: &str) -> Option<(&str, &str)> {
    let parts = name.strip_prefix(OF_CONTAINER)?.split_once('.')?;
    (ASKING.contains(&parts.1) || OTHERS.contains(&parts.1)).then_some(parts)
}

/// The container of an annotation that asks for it.
fn asking(name: &str) -> Option<&str> {
    let of_limit =
        name.strip_prefix(LIMIT_OF_CONTAINER.0).and_then(|rest| rest.strip_suffix(LIMIT_OF_CONTAINER.1));
    let of_others =
        of_container(name).filter(|(_, ending)| ASKING.contains(ending)).map(|(container, _)| container);
    of_limit.or(of_others)
}

fn limit_of_container(container: &str) -> String {
    format!("{}{container}{}", LIMIT_OF_CONTAINER.0, LIMIT_OF_CONTAINER.1)
}

/// Whether the pod's scheduler reads the annotations whose names have no domain of theirs. Else they may be anything's.
fn is_theirs(pod: &Value) -> bool {
    let scheduler = pod.pointer("/spec/schedulerName").and_then(Value::as_str);
    scheduler.is_some_and(|name| SCHEDULERS.contains(&name))
}

fn is_of_pod(name: &str) -> bool {
    ASKING_OF_POD.contains(&name) || OTHERS_OF_POD.contains(&name)
}

/// The container that the annotations are for: KAI Scheduler allows one.
fn container(pod: &Value, annotations: &BTreeMap<String, String>, mark: &str) -> Result<String, Refusal> {
    let mut named: BTreeSet<&str> = annotations.keys().filter_map(|name| asking(name)).collect();
    named.extend(annotations.get(CONTAINER).map(String::as_str));
    let names: Vec<String> = pod::containers(pod).filter_map(Value::as_object).map(pod::name).collect();
    let mut named = named.into_iter();
    let found = match (named.next(), named.next()) {
        (None, _) => names.first(),
        (Some(name), None) => names.iter().find(|one| *one == name),
        (Some(_), Some(_)) => return Err(Refusal::TwoFractions(mark.to_owned())),
    };
    found.cloned().ok_or_else(|| Refusal::NoContainer(mark.to_owned()))
}

/// Removes the annotations.
pub(super) fn remove(pod: &mut Value) {
    let is_theirs = is_theirs(pod);
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        let goes = |name: &str| {
            (is_theirs && is_of_pod(name)) || asking(name).is_some() || of_container(name).is_some()
        };
        annotations.retain(|name, _| !goes(name));
    }
}

/// A variable of the toolkit that the container has.
pub(super) fn variable(container: &Map<String, Value>) -> Option<&'static str> {
    VARIABLES.into_iter().find(|name| value(container, name).is_some())
}

/// The value of a variable that is not empty. Of several the last counts.
fn value<'a>(container: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let variables = container.get("env")?.as_array()?;
    let found = variables.iter().rev().find(|one| one.get("name").is_some_and(|it| it == name))?;
    // One from elsewhere is not known here, and no number.
    let text = if found.get("valueFrom").is_some() { "valueFrom" } else { found.get("value")?.as_str()? };
    Some(text).filter(|text| !text.is_empty())
}

/// What a container asks for with whole GPUs and variables of the toolkit.
pub(super) fn of_toolkit(gpus: u64, container: &Map<String, Value>) -> Result<Ours, RequestError> {
    let size = |name| value(container, name).map(|text| mebibytes(name, text)).transpose();
    let [limit, request] = VARIABLES;
    let memory = memory(limit, size(limit)?, size(request)?)?;
    Ok(Ours { gpus, memory, cores: None, priority: None })
}

fn mebibytes(name: &str, text: &str) -> Result<Memory, RequestError> {
    let amount: Option<u64> = text.parse().ok().filter(|amount| *amount > 0);
    let amount = amount.ok_or_else(|| RequestError::NoMebibytes(name.to_owned(), text.to_owned()))?;
    Ok(Memory::Each(amount.saturating_mul(MIB)))
}

/// The limit, else the request. `mark` is a name that asks.
fn memory(mark: &str, limit: Option<Memory>, request: Option<Memory>) -> Result<Memory, RequestError> {
    match (limit, request) {
        (Some(Memory::Each(limit)), Some(Memory::Each(request)))
        | (Some(Memory::Part(_, limit)), Some(Memory::Part(_, request)))
            if limit < request =>
        {
            Err(RequestError::LimitBelowRequest(mark.to_owned()))
        }
        (limit, request) => Ok(limit.or(request).unwrap_or(Memory::None)),
    }
}

/// All annotations and variables, with `main` for the container's name.
#[cfg(test)]
pub(in super::super) fn names() -> impl Iterator<Item = String> {
    let own = ASKING.iter().chain(&OTHERS).map(|ending| format!("{OF_CONTAINER}main.{ending}"));
    let own = own.chain([limit_of_container("main")]);
    let others = ASKING_OF_POD.into_iter().chain(OTHERS_OF_POD).chain(VARIABLES);
    own.chain(others.map(str::to_owned))
}
