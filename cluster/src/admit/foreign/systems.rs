//! The other systems: by which resources a container asks for a share, and what they mean (docs/generated/migration.md).

use super::super::refusal::RequestError;
use super::super::rules::AliyunUnit;
use super::{Asked, GPU, Memory, Ours, WHOLE_PPM};

pub(super) const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Unit of `tencent.com/vcuda-memory` (bytes).
const GAIA_UNIT: u64 = 256 * MIB;

pub(super) struct System {
    /// Resources of its own: a container that has one of them asks for a share.
    pub(super) marks: &'static [&'static str],
    /// Resources that mean something else without those.
    pub(super) beside: &'static [&'static str],
    pub(super) convert: fn(&Asked<'_>) -> Result<Ours, RequestError>,
}

pub(super) const SYSTEMS: [System; 6] = [
    System {
        // HAMi.
        marks: &[
            "nvidia.com/gpumem",
            "nvidia.com/gpumem-percentage",
            "nvidia.com/gpucores",
            "nvidia.com/priority",
        ],
        beside: &[GPU],
        convert: hami,
    },
    System {
        // GaiaGPU.
        marks: &["tencent.com/vcuda-core", "tencent.com/vcuda-memory"],
        beside: &[],
        convert: |asked| {
            let memory = asked.number("tencent.com/vcuda-memory")?;
            whole_from_hundred(asked, "tencent.com/vcuda-core", memory, GAIA_UNIT)
        },
    },
    System {
        // qGPU.
        marks: &["tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"],
        beside: &[],
        convert: |asked| {
            let memory = asked.number("tke.cloud.tencent.com/qgpu-memory")?;
            whole_from_hundred(asked, "tke.cloud.tencent.com/qgpu-core", memory, GIB)
        },
    },
    System {
        // cGPU or gpushare.
        marks: &["aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"],
        beside: &[],
        convert: aliyun,
    },
    System {
        // Volcano.
        marks: &[
            "volcano.sh/vgpu-number",
            "volcano.sh/vgpu-memory",
            "volcano.sh/vgpu-memory-percentage",
            "volcano.sh/vgpu-cores",
        ],
        beside: &[],
        convert: volcano,
    },
    System {
        // Koordinator or Elastic GPU.
        marks: &[
            "koordinator.sh/gpu.shared",
            "koordinator.sh/gpu-core",
            "koordinator.sh/gpu-memory",
            "koordinator.sh/gpu-memory-ratio",
            "elasticgpu.io/gpu-core",
            "elasticgpu.io/gpu-memory",
        ],
        beside: &[],
        convert: koordinator,
    },
];

fn hami(asked: &Asked<'_>) -> Result<Ours, RequestError> {
    let gpus = asked.number(GPU)?.unwrap_or(1).max(1);
    let percentage = "nvidia.com/gpumem-percentage";
    let priority = match asked.number("nvidia.com/priority")? {
        None => None,
        Some(0) => Some("high"),
        Some(1) => Some("low"),
        Some(other) => {
            return Err(RequestError::HamiPriority("nvidia.com/priority".to_owned(), other));
        }
    };
    Ok(Ours {
        gpus,
        memory: each_or_part(asked.number("nvidia.com/gpumem")?, MIB, percentage, asked.number(percentage)?),
        cores: asked.number("nvidia.com/gpucores")?.map(|cores| cores.saturating_mul(gpus)),
        priority,
    })
}

/// Percent up to a hundred of one GPU; from there on, whole GPUs.
fn whole_from_hundred(
    asked: &Asked<'_>,
    core: &'static str,
    memory: Option<u64>,
    unit: u64,
) -> Result<Ours, RequestError> {
    let cores = asked.number(core)?.filter(|cores| *cores > 0);
    let gpus = match cores {
        Some(cores) if cores > 100 && cores % 100 != 0 => {
            return Err(RequestError::NotWholeGpus(core.to_owned(), cores));
        }
        Some(cores) => (cores / 100).max(1),
        None => 1,
    };
    let is_whole = cores.is_some_and(|cores| cores >= 100);
    let memory = match memory.filter(|memory| *memory > 0) {
        Some(units) => Memory::Total(units.saturating_mul(unit)),
        None if is_whole => Memory::Part(core, WHOLE_PPM),
        None => Memory::None,
    };
    Ok(Ours { gpus, memory, cores, priority: None })
}

fn aliyun(asked: &Asked<'_>) -> Result<Ours, RequestError> {
    let unit = match asked.rules.aliyun_unit {
        AliyunUnit::Gibibytes => GIB,
        AliyunUnit::Mebibytes => MIB,
    };
    let memory = asked.number("aliyun.com/gpu-mem")?;
    Ok(Ours {
        gpus: 1,
        memory: memory.map_or(Memory::None, |units| Memory::Total(units.saturating_mul(unit))),
        cores: asked.number("aliyun.com/gpu-core.percentage")?,
        priority: None,
    })
}

fn volcano(asked: &Asked<'_>) -> Result<Ours, RequestError> {
    let gpus = asked.number("volcano.sh/vgpu-number")?.unwrap_or(1).max(1);
    let unit = MIB.saturating_mul(asked.rules.volcano_memory_factor);
    let percentage = "volcano.sh/vgpu-memory-percentage";
    let memory = asked.number("volcano.sh/vgpu-memory")?;
    Ok(Ours {
        gpus,
        memory: each_or_part(memory, unit, percentage, asked.number(percentage)?),
        cores: asked.number("volcano.sh/vgpu-cores")?.map(|cores| cores.saturating_mul(gpus)),
        priority: None,
    })
}

fn koordinator(asked: &Asked<'_>) -> Result<Ours, RequestError> {
    let unit = "elasticgpu.io/gpu-memory";
    if asked.number(unit)?.is_some_and(|amount| amount > 0) {
        let memory = asked.rules.resources().memory.to_owned();
        return Err(RequestError::UnknownUnit(unit.to_owned(), memory));
    }
    let ratio = "koordinator.sh/gpu-memory-ratio";
    let gpus = asked.number("koordinator.sh/gpu.shared")?.unwrap_or(1).max(1);
    let memory = match (asked.number("koordinator.sh/gpu-memory")?, asked.number(ratio)?) {
        (Some(bytes), _) => Memory::Total(bytes),
        // A total, as the amounts beside it.
        (None, Some(percent)) => part(ratio, percent.div_ceil(gpus)),
        (None, None) => Memory::None,
    };
    let cores = match asked.number("koordinator.sh/gpu-core")? {
        Some(cores) => Some(cores),
        None => asked.number("elasticgpu.io/gpu-core")?,
    };
    Ok(Ours { gpus, memory, cores, priority: None })
}

fn each_or_part(units: Option<u64>, unit: u64, name: &'static str, percent: Option<u64>) -> Memory {
    match (units, percent) {
        (Some(units), _) => Memory::Each(units.saturating_mul(unit)),
        (None, Some(percent)) => part(name, percent),
        (None, None) => Memory::None,
    }
}

fn part(name: &'static str, percent: u64) -> Memory {
    Memory::Part(name, percent.saturating_mul(WHOLE_PPM / 100))
}
