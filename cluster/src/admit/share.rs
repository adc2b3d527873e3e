//! The share that a container asks for, in units of the device plugin.
//!
//! Amounts of memory are counts of chunks or sizes. A size has a suffix of a power of two (`4Gi`), or is so large that no node
//! has as many chunks: 16777216 and more, which is the smallest chunk. The API server itself writes `4G` for 4000000000 and
//! `5k` for 5000, so a decimal suffix says nothing.

use serde_json::{Map, Value};
use vcuda_quota::MemorySize;
use vcuda_quota::pods::quantity::{self, QuantityError};
use vcuda_quota::pods::{Counts, EachGpu};

use super::pod;
use super::refusal::{CHUNKS_OF_A_NODE, RequestError};
use super::rules::Rules;

/// A number from here on is a size (bytes): the smallest chunk.
const SIZES_FROM: u64 = 16 << 20;
/// The smallest size (bytes): smaller ones are slips of the pen.
const SIZE_LEAST: u64 = 1 << 20;
/// What a container without a share of time is promised in mode plugin, where kubelet counts whole percents.
const LEAST_PERCENT: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) gpus: u32,
    pub(crate) each: EachGpu,
    /// Memory of each (bytes), not rounded to chunks.
    pub(crate) memory_bytes: u64,
    /// Whether no share of time was asked for. The count of percents is [`LEAST_PERCENT`] then.
    pub(crate) is_unpromised: bool,
    /// Share of time of each (thousandths), if it is not whole percents.
    pub(crate) cores_permille: Option<u32>,
    /// Whether it is of memory that suspendable containers take turns in.
    pub(crate) is_suspendable: bool,
}

/// Memory as it was asked for.
enum Memory {
    Chunks(u64),
    Bytes(u64),
}

impl Share {
    /// The share that `container` asks for by our own names; nothing if it asks for none.
    pub(crate) fn asked(container: &Map<String, Value>, rules: &Rules) -> Result<Option<Self>, RequestError> {
        let text = |name: &str| pod::amount(container, name).map(|text| (name.to_owned(), text));
        let (memory, is_suspendable) = memory_of(container, rules)?;
        let names = rules.resources_of(is_suspendable);
        let gpus = text(names.gpu).map(whole).transpose()?;
        let tenths = text(names.cores).map(tenths).transpose()?.filter(|tenths| *tenths > 0);
        if gpus.unwrap_or(0) == 0 && memory.is_none() && tenths.is_none() {
            return Ok(None);
        }
        let gpus = narrow(gpus.unwrap_or(u64::from(memory.is_some())));
        let of_default = rules.default_memory_bytes.filter(|_| gpus > 0);
        let memory = memory.or(of_default.map(|bytes| Memory::Bytes(bytes.saturating_mul(gpus.into()))));
        let divisor = u64::from(gpus.max(1));
        let permille = tenths.map(|tenths| tenths.div_ceil(divisor));
        let percents = match (tenths, permille) {
            (Some(tenths), _) if tenths % 10 == 0 => narrow(tenths / 10),
            (_, Some(permille)) => narrow(permille.div_ceil(10)).saturating_mul(gpus),
            (_, None) => LEAST_PERCENT.saturating_mul(gpus),
        };
        let (chunks, bytes) = match memory {
            None => (0, 0),
            Some(Memory::Chunks(chunks)) => {
                (narrow(chunks), chunks.saturating_mul(rules.chunk_bytes) / divisor)
            }
            Some(Memory::Bytes(bytes)) => {
                let each = bytes.div_ceil(divisor);
                (narrow(each.div_ceil(rules.chunk_bytes)).saturating_mul(gpus), each)
            }
        };
        let counts = Counts { gpus, chunks, percents };
        Ok(Some(Self {
            gpus,
            each: counts.of_each_gpu(rules.chunk_bytes, names)?,
            memory_bytes: bytes,
            is_unpromised: tenths.is_none(),
            cores_permille: permille.map(narrow).filter(|_| tenths.is_some_and(|tenths| tenths % 10 != 0)),
            is_suspendable,
        }))
    }

    pub(crate) fn write(&self, container: &mut Map<String, Value>, rules: &Rules) {
        let names = rules.resources_of(self.is_suspendable);
        pod::set_amount(container, names.gpu, Some(self.gpus));
        pod::set_amount(container, names.memory, Some(self.each.chunks.saturating_mul(self.gpus)));
        pod::set_amount(container, names.cores, Some(self.each.percents.saturating_mul(self.gpus)));
    }
}

impl Memory {
    fn is_none(&self) -> bool {
        matches!(self, Self::Chunks(0) | Self::Bytes(0))
    }
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn wrong(name: &str) -> impl FnOnce(QuantityError) -> RequestError {
    let name = name.to_owned();
    move |error| RequestError::Quantity(name, error)
}

/// A whole amount.
pub(super) fn whole((name, text): (String, String)) -> Result<u64, RequestError> {
    let tenths = quantity::parse_tenths(&text).map_err(wrong(&name))?;
    match tenths % 10 {
        0 => Ok(tenths / 10),
        _ => Err(RequestError::Fraction(name, text)),
    }
}

fn tenths((name, text): (String, String)) -> Result<u64, RequestError> {
    quantity::parse_tenths(&text).map_err(wrong(&name))
}

/// Memory that a container asks for, and whether it is that for suspendable ones.
fn memory_of(container: &Map<String, Value>, rules: &Rules) -> Result<(Option<Memory>, bool), RequestError> {
    let amount = |name: &str| -> Result<Option<Memory>, RequestError> {
        let text = pod::amount(container, name).map(|text| (name.to_owned(), text));
        let found = text.map(|text| memory(text, rules)).transpose()?;
        Ok(found.filter(|memory| !memory.is_none()))
    };
    let common = rules.resources().memory;
    match (amount(common)?, amount(&rules.suspendable_memory)?) {
        (Some(_), Some(_)) => {
            Err(RequestError::BothMemories(common.to_owned(), rules.suspendable_memory.clone()))
        }
        (None, Some(memory)) => Ok((Some(memory), true)),
        (memory, None) => Ok((memory, false)),
    }
}

fn memory((name, text): (String, String), rules: &Rules) -> Result<Memory, RequestError> {
    let value = quantity::parse(&text).map_err(wrong(&name))?;
    let is_size = quantity::is_binary(&text) || value >= SIZES_FROM;
    if !is_size && value <= CHUNKS_OF_A_NODE {
        return whole((name, text)).map(Memory::Chunks);
    }
    if is_size && (value == 0 || value >= SIZE_LEAST) {
        return Ok(Memory::Bytes(value));
    }
    Err(RequestError::NeitherChunksNorSize { resource: name, text, chunk: MemorySize(rules.chunk_bytes) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(limits: Value) -> Result<Option<Share>, String> {
        let container = json!({"resources": {"limits": limits}});
        let container = container.as_object().unwrap().clone();
        Share::asked(&container, &Rules::default()).map_err(|error| error.to_string())
    }

    fn counts(limits: Value) -> (u32, u32, u32) {
        let share = asked(limits).unwrap().unwrap();
        (share.gpus, share.each.chunks, share.each.percents)
    }

    #[test]
    fn sizes_are_told_from_counts() {
        for (memory, chunks) in [
            ("16", 16),
            ("5k", 5000),
            ("4Gi", 16),
            ("4G", 15),
            ("4294967296", 16),
            ("3000Mi", 12),
            ("1Mi", 1),
            ("4e9", 15),
            ("16777216", 1),
        ] {
            assert_eq!(
                counts(json!({"vcuda.io/memory": memory, "vcuda.io/cores": "30"})),
                (1, chunks, 30),
                "{memory}"
            );
        }
        for neither in ["5001", "16777215", "1Ki", "6k"] {
            let error = asked(json!({"vcuda.io/memory": neither})).unwrap_err();
            assert!(error.contains("neither a number of chunks of 256 MiB"), "{error}");
        }
    }

    #[test]
    fn sizes_are_rounded_up_on_each_gpu_and_counts_have_to_divide() {
        let two = asked(json!({"vcuda.io/gpu": 2, "vcuda.io/memory": "5Gi", "vcuda.io/cores": "25"}));
        assert!(two.unwrap_err().contains("ask for 24 or 26"));
        let two =
            asked(json!({"vcuda.io/gpu": "2", "vcuda.io/memory": "5000Mi", "vcuda.io/cores": "25500m"}));
        let two = two.unwrap().unwrap();
        assert_eq!((two.each.chunks, two.memory_bytes), (10, 2500 << 20));
        assert_eq!((two.each.percents, two.cores_permille), (13, Some(128)));
        assert!(asked(json!({"vcuda.io/gpu": 2, "vcuda.io/memory": "33"})).unwrap_err().contains("32 or 34"));
    }

    #[test]
    fn what_is_left_out_has_defaults() {
        let memory = asked(json!({"vcuda.io/memory": "4Gi"})).unwrap().unwrap();
        assert_eq!((memory.gpus, memory.each.chunks, memory.each.percents), (1, 16, 1));
        assert!(memory.is_unpromised);
        assert_eq!(asked(json!({"cpu": "1"})), Ok(None));
        assert_eq!(asked(json!({"vcuda.io/gpu": "0", "vcuda.io/memory": "0"})), Ok(None));
        let alone = asked(json!({"vcuda.io/gpu": "1"})).unwrap_err();
        assert!(alone.contains("for no vcuda.io/memory: add"), "{alone}");
        let rules = Rules { default_memory_bytes: Some(1 << 30), ..Rules::default() };
        let container = json!({"resources": {"requests": {"vcuda.io/gpu": "2"}}});
        let share = Share::asked(container.as_object().unwrap(), &rules).unwrap().unwrap();
        assert_eq!((share.gpus, share.each.chunks), (2, 4));
    }

    #[test]
    fn memory_for_suspendable_containers_is_counted_as_the_other_and_never_beside_it() {
        let limits = json!({"vcuda.io/suspendable-memory": "4Gi", "vcuda.io/cores": "30"});
        let share = asked(limits.clone()).unwrap().unwrap();
        assert_eq!((share.gpus, share.each.chunks, share.is_suspendable), (1, 16, true));
        let mut container = json!({"resources": {"limits": limits}}).as_object().unwrap().clone();
        share.write(&mut container, &Rules::default());
        assert_eq!(
            container["resources"]["limits"],
            json!({"vcuda.io/gpu": "1", "vcuda.io/suspendable-memory": "16", "vcuda.io/cores": "30"})
        );
        let both = asked(json!({"vcuda.io/memory": "1Gi", "vcuda.io/suspendable-memory": "1Gi"}));
        assert!(
            both.unwrap_err()
                .contains("it asks for vcuda.io/memory and for vcuda.io/suspendable-memory: leave one")
        );
        assert!(
            !asked(json!({"vcuda.io/memory": "1Gi", "vcuda.io/suspendable-memory": "0"}))
                .unwrap()
                .unwrap()
                .is_suspendable
        );
    }

    #[test]
    fn nonsense_is_refused_as_on_the_nodes() {
        for (limits, said) in [
            (json!({"vcuda.io/cores": "30"}), "it asks for vcuda.io/cores: 30 and for no vcuda.io/gpu: add"),
            (json!({"vcuda.io/memory": "16", "vcuda.io/cores": "101"}), "more than 1 of 100 percent"),
            (json!({"vcuda.io/memory": "four"}), "'four' is no quantity"),
            (json!({"vcuda.io/memory": "-4Gi"}), "'-4Gi' is no quantity"),
            (json!({"vcuda.io/gpu": "500m", "vcuda.io/memory": "16"}), "500m is not a whole number"),
            (json!({"vcuda.io/memory": "1.5"}), "1.5 is not a whole number"),
            (json!({"vcuda.io/memory": {}}), "'{}' is no quantity"),
            (json!({"vcuda.io/gpu": "9999999999", "vcuda.io/memory": "16"}), "does not divide"),
        ] {
            let error = asked(limits).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
