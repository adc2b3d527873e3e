//! Requests of other systems for sharing GPUs, rewritten as docs/generated/migration.md has them. A container's resources become
//! ours; what belongs to the other system's own parts goes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::pod;
use super::refusal::{CHUNKS_OF_A_NODE, Refusal, RequestError};
use super::rules::Rules;
use super::share::whole;

mod fractions;
mod systems;

use fractions::Fraction;
#[cfg(test)]
pub(super) use fractions::names;
use systems::SYSTEMS;

/// Longest name of an annotation, after the domain.
const NAME_MAX: usize = 63;
/// Schedulers of the other systems, which place by their own resources.
const SCHEDULERS: [&str; 2] = ["hami-scheduler", "koord-scheduler"];
/// Variables by which other systems' libraries are told limits.
const VARIABLES: [&str; 3] =
    ["CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "GPU_CORE_UTILIZATION_POLICY"];
/// GPUs of HAMi and of NVIDIA's device plugin.
const GPU: &str = "nvidia.com/gpu";
/// Labels for other systems' webhooks.
const LABELS: [&str; 1] = ["koordinator.sh/gpu-isolation-provider"];
/// Annotations of HAMi that choose a GPU.
const CHOICES: [&str; 4] = [
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype",
];
/// All of a GPU's memory (millionths).
const WHOLE_PPM: u64 = 1_000_000;
/// Label of nodes by which qGPU chooses a policy.
const QGPU_POLICY: &str = "tke.cloud.tencent.com/qgpu-schedule-policy";

/// A container's request in our units.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ours {
    gpus: u64,
    memory: Memory,
    /// Percents, a total.
    cores: Option<u64>,
    /// Priority, of systems that have one.
    priority: Option<&'static str>,
}

/// Memory in one of the systems' units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    None,
    /// Bytes of all GPUs together.
    Total(u64),
    /// Bytes of each GPU.
    Each(u64),
    /// Part of each GPU (millionths).
    Part(&'static str, u64),
}

/// What a container asks for by one system's names.
struct Asked<'a> {
    container: &'a Map<String, Value>,
    rules: &'a Rules,
}

impl Asked<'_> {
    /// Amount of the resource `name`, a whole number.
    fn number(&self, name: &str) -> Result<Option<u64>, RequestError> {
        let text = pod::amount(self.container, name);
        text.map(|text| whole((name.to_owned(), text))).transpose()
    }
}

/// What a container asks for by the names of one other system.
struct Request {
    ours: Ours,
    /// A name by which it asks.
    mark: String,
    /// Resources that go.
    resources: Vec<&'static str>,
}

/// Rewrites all containers of a pod.
pub(crate) fn convert(pod: &mut Value, rules: &Rules) -> Result<(), Refusal> {
    let fraction = Fraction::asked(pod)?;
    let mut priorities: BTreeMap<String, &'static str> = BTreeMap::new();
    let mut is_changed = false;
    pod::edit_containers(pod, |container| {
        let name = pod::name(container);
        let of_container = |error| Refusal::Container(name.clone(), error);
        let fraction = fraction.as_ref().filter(|fraction| fraction.container == name);
        let Some(request) = asked(container, fraction, rules).map_err(of_container)? else {
            return Ok::<(), Refusal>(());
        };
        if let Some(priority) = request.ours.priority {
            priorities.insert(name.clone(), priority);
        }
        write(container, &request, rules).map_err(of_container)?;
        is_changed = true;
        Ok(())
    })?;
    for (container, priority) in priorities {
        annotate_container(pod, "priority", &container, priority)?;
    }
    if is_changed { remove_others_parts(pod) } else { Ok(()) }
}

/// Adds an annotation of ours for one container, unless the pod has it for that container or for all.
pub(crate) fn annotate_container(
    pod: &mut Value,
    word: &'static str,
    container: &str,
    value: &str,
) -> Result<(), Refusal> {
    if pod::annotations(pod).contains_key(&format!("vcuda.io/{word}")) {
        return Ok(());
    }
    let name = format!("{word}.{container}");
    if name.len() > NAME_MAX {
        let error = RequestError::LongName(word, container.to_owned());
        return Err(Refusal::Container(container.to_owned(), error));
    }
    pod::annotate(pod, &format!("vcuda.io/{name}"), value);
    Ok(())
}

/// What a container asks for by other systems' names.
fn asked(
    container: &Map<String, Value>,
    fraction: Option<&Fraction>,
    rules: &Rules,
) -> Result<Option<Request>, RequestError> {
    let has = |name: &str| pod::amount(container, name).filter(|amount| amount != "0").is_some();
    let mut systems =
        SYSTEMS.iter().filter_map(|system| Some((system, *system.marks.iter().find(|name| has(name))?)));
    let (system, variable) = (systems.next(), fractions::variable(container));
    // Whole GPUs alone are no share: then the variable is NVIDIA's.
    let (gpu, own) = (has(GPU).then_some(GPU), rules.all_names().find(|name| has(name)).map(String::as_str));
    let mut marks = [own, system.map(|(_, mark)| mark), systems.next().map(|(_, mark)| mark)]
        .into_iter()
        .chain([fraction.map(|fraction| fraction.mark.as_str()), gpu.filter(|_| fraction.is_some())])
        .chain([variable])
        .flatten();
    if let (Some(one), Some(other)) = (marks.next(), marks.next()) {
        return Err(RequestError::TwoSystems(one.to_owned(), other.to_owned()));
    }
    let asked = Asked { container, rules };
    Ok(match (system, fraction, variable) {
        (Some((system, mark)), ..) => Some(Request {
            ours: (system.convert)(&asked)?,
            mark: mark.to_owned(),
            resources: system.marks.iter().chain(system.beside).copied().collect(),
        }),
        (None, Some(Fraction { ours, mark, .. }), _) => {
            Some(Request { ours: ours.clone(), mark: mark.clone(), resources: Vec::new() })
        }
        (None, None, Some(mark)) if gpu.is_some() => {
            let ours = fractions::of_toolkit(asked.number(GPU)?.unwrap_or_default(), container)?;
            Some(Request { ours, mark: mark.to_owned(), resources: vec![GPU] })
        }
        (None, None, _) => None,
    })
}

fn write(
    container: &mut Map<String, Value>,
    Request { ours, mark, resources }: &Request,
    rules: &Rules,
) -> Result<(), RequestError> {
    for name in resources {
        pod::set_amount(container, name, None);
    }
    let chunks = chunks(ours, mark, rules)?;
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let names = rules.resources();
    pod::set_amount(container, names.gpu, Some(narrow(ours.gpus)));
    if let Some(chunks) = chunks {
        pod::set_amount(container, names.memory, Some(narrow(chunks)));
    }
    if let Some(cores) = ours.cores {
        pod::set_amount(container, names.cores, Some(narrow(cores)));
    }
    if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) {
        variables.retain(|variable| {
            let name = variable.get("name").and_then(Value::as_str).unwrap_or_default();
            // HAMi has one for each GPU: CUDA_DEVICE_MEMORY_LIMIT_0.
            let base = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '_');
            !VARIABLES.contains(&base) && !fractions::VARIABLES.contains(&name)
        });
    }
    Ok(())
}

/// Chunks of all GPUs together.
fn chunks(ours: &Ours, mark: &str, rules: &Rules) -> Result<Option<u64>, RequestError> {
    let chunks = match ours.memory {
        Memory::None => None,
        Memory::Total(bytes) => Some(bytes.div_ceil(rules.chunk_bytes)),
        Memory::Each(bytes) => Some(bytes.div_ceil(rules.chunk_bytes).saturating_mul(ours.gpus)),
        Memory::Part(name, ppm) => {
            if ppm > WHOLE_PPM {
                return Err(RequestError::MoreThanAll(name.to_owned(), ppm / 10_000));
            }
            let unknown = || RequestError::PartOfMemory(name.to_owned(), rules.resources().memory.to_owned());
            let of_gpu = rules.gpu_memory_bytes.ok_or_else(unknown)? / rules.chunk_bytes;
            // Parts that make up a whole fit on one GPU.
            Some((of_gpu.saturating_mul(ppm) / WHOLE_PPM).max(1).saturating_mul(ours.gpus))
        }
    };
    match chunks.filter(|chunks| *chunks > CHUNKS_OF_A_NODE) {
        None => Ok(chunks),
        // More than a count of ours can say.
        Some(_) => Err(RequestError::TooMuchMemory(mark.to_owned())),
    }
}

/// Removes what the other systems' schedulers and webhooks act on.
fn remove_others_parts(pod: &mut Value) -> Result<(), Refusal> {
    if let Some(choice) = CHOICES.into_iter().find(|key| pod::annotations(pod).contains_key(*key)) {
        return Err(Refusal::ChoiceOfGpu(choice.to_owned()));
    }
    fractions::remove(pod);
    if let Some(labels) = pod.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| !LABELS.contains(&key.as_str()));
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let scheduler = spec.get("schedulerName").and_then(Value::as_str).unwrap_or_default();
        if SCHEDULERS.iter().chain(&fractions::SCHEDULERS).any(|one| *one == scheduler) {
            spec.insert("schedulerName".to_owned(), "default-scheduler".into());
        }
    }
    let selector = pod.pointer_mut("/spec/nodeSelector").and_then(Value::as_object_mut);
    let chosen = selector.and_then(|selector| selector.remove(QGPU_POLICY));
    if let Some(chosen) = chosen {
        let chosen = chosen.as_str().unwrap_or_default().to_owned();
        let policy = match chosen.as_str() {
            "fixed-share" => "fixed",
            "best-effort" => "best-effort",
            "burst-share" => "burst",
            _ => return Err(Refusal::QgpuPolicy(QGPU_POLICY.to_owned(), chosen)),
        };
        pod::annotate(pod, "vcuda.io/policy", policy);
    }
    Ok(())
}

/// All resources of other systems.
#[cfg(test)]
pub(super) fn resources() -> impl Iterator<Item = &'static str> {
    SYSTEMS.iter().flat_map(|system| system.marks.iter().chain(system.beside).copied())
}
