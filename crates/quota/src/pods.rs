//! Requests of pods, as their manifests write them: counts of units, quantities, annotations. The admission webhook and the
//! parts on the nodes read them alike, and refuse them in the same words.

pub mod annotations;
pub mod bounds;
mod counts;
mod lowered;
pub mod node_gpus;
pub mod parameters;
pub mod quantity;
mod settings;

pub use counts::{CORES_PER_GPU, Counts, CountsError, EachGpu, ResourceNames};
pub use lowered::{AmountsError, lowered_quota, overlaid, without_guarantee};
pub use settings::{parse_chunk, parse_resource_name};
