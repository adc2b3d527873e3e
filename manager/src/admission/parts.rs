//! Parts of a GPU's memory for schedulers, which count sums and know no other rule.
//!
//! With a factor for suspendable tenants, two things are not sums: the largest suspendable tenant fits beside all that are not
//! suspendable, and only then may the quotas exceed the memory. So the memory is divided. One part is common, for all tenants,
//! and given once. The other is for suspendable tenants alone, and given more than once. What fits into the parts is always
//! admitted.

use super::Rules;
use crate::gpu::Gpu;

/// Parts of a GPU's memory that may be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// Sum of the quotas of tenants in the common part (bytes).
    pub common_bytes: u64,
    /// Sum of the quotas of the other tenants, which are all suspendable (bytes).
    pub suspendable_bytes: u64,
    /// Largest quota of one of those (bytes).
    pub suspendable_largest_bytes: u64,
}

impl Rules {
    /// Parts of the memory of `gpu`; `None` if suspendable tenants count like others. Up to the factor 2 the part for suspendable
    /// tenants is the excess, given twice; from there on it is all the memory.
    pub fn memory_parts(&self, gpu: &Gpu) -> Option<Parts> {
        if !self.may_exceed_memory() || self.sharers_max < 2 {
            return None;
        }
        // As with the most tenants: what fits then fits with fewer, too.
        let once = self.memory_capacity_bytes(gpu, self.sharers_max);
        let all = u128::from(once) * u128::from(self.suspendable_overcommit_permille) / 1000;
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        let largest = (all - once).min(once);
        let common = once - largest;
        Some(Parts {
            common_bytes: common,
            suspendable_bytes: all - common,
            suspendable_largest_bytes: largest,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vcuda_quota::Quota;
    use vcuda_region::GpuUuid;

    use super::super::Load;
    use super::*;

    const GIB: u64 = 1 << 30;

    fn gpu(memory_bytes: u64) -> Gpu {
        Gpu::new(GpuUuid::from_bytes([1; 16]), "simulated", memory_bytes)
    }

    fn rules(factor_permille: u32, sharers_max: u32) -> Rules {
        Rules { suspendable_overcommit_permille: factor_permille, sharers_max, ..Rules::default() }
    }

    #[test]
    fn the_excess_is_given_twice_and_from_the_factor_2_on_all_is_for_suspendable_tenants() {
        let gpu = gpu(80 * GIB);
        let once = rules(1000, 16).memory_capacity_bytes(&gpu, 16);
        for (factor_permille, common, suspendable, largest) in [
            (1250, once * 3 / 4, once / 2, once / 4),
            (1500, once / 2, once, once / 2),
            (2000, 0, 2 * once, once),
            (3000, 0, 3 * once, once),
        ] {
            let parts = rules(factor_permille, 16).memory_parts(&gpu).unwrap();
            // Rounded down by less than 4 bytes.
            for (part, expected) in [
                (parts.common_bytes, common),
                (parts.suspendable_bytes, suspendable),
                (parts.suspendable_largest_bytes, largest),
            ] {
                assert!(part.abs_diff(expected) < 4, "{factor_permille}: {parts:?}, {expected}");
            }
        }
        assert_eq!(rules(1000, 16).memory_parts(&gpu), None);
        assert_eq!(rules(1500, 1).memory_parts(&gpu), None, "nothing to take turns with");
    }

    proptest! {
        #[test]
        fn what_fits_into_the_parts_is_always_admitted(
            memory_gib in 2..200_u64,
            reserve in 0..GIB / 16,
            factor_permille in 1001..4000_u32,
            // Size (thousandths of the part), whether it is in the common part, whether it is suspendable if it is.
            tenants in prop::collection::vec((1..1000_u64, any::<bool>(), any::<bool>()), 1..40),
        ) {
            let gpu = gpu(memory_gib * GIB);
            let rules = Rules { reserve_bytes_per_sharer: reserve, ..rules(factor_permille, 16) };
            let parts = rules.memory_parts(&gpu).unwrap();
            let mut load = Load::default();
            let (mut common, mut suspendable) = (0, 0);
            for (permille, is_common, is_suspendable) in tenants {
                let (taken, part, largest) = match is_common {
                    true => (&mut common, parts.common_bytes, parts.common_bytes),
                    false => (&mut suspendable, parts.suspendable_bytes, parts.suspendable_largest_bytes),
                };
                let bytes = largest * permille / 1000;
                if bytes == 0 || *taken + bytes > part || load.sharers == 16 {
                    continue;
                }
                *taken += bytes;
                let is_suspendable = is_suspendable || !is_common;
                let quota = Quota::fixed(Some(bytes), 1000);
                prop_assert!(rules.fits(&gpu, &load, &quota, is_suspendable), "{parts:?} {load:?} {bytes} {is_suspendable}");
                match is_suspendable {
                    true => load.add_suspendable(Some(bytes), 0),
                    false => load.add(Some(bytes), 0),
                }
            }
        }
    }
}
