//! Quotas in words.

use vcuda_manager_api::v1::Grant;
use vcuda_quota::{CoreShare, MemorySize, Policy, Quota};

/// Quota of the grant's tenant on each of its GPUs.
pub(crate) fn quota(grant: &Grant) -> Quota {
    Quota::from(&grant.amounts.unwrap_or_default())
}

/// Quota that comes back when the time of a change is over, else the present one.
pub(crate) fn lasting(grant: &Grant) -> Quota {
    grant.lasting_amounts.as_ref().map_or_else(|| quota(grant), Quota::from)
}

/// Text of a quota, such as `4 GiB, 30 % fixed`. A quota without a guarantee of GPU time is named so.
pub(crate) fn described(quota: &Quota) -> String {
    let memory =
        quota.memory_bytes.map_or_else(|| "whole GPU".to_owned(), |bytes| MemorySize(bytes).to_string());
    if quota.policy == Policy::Fixed && quota.reserved_permille() == 0 {
        return format!("{memory}, no guarantee (what is left)");
    }
    format!("{memory}, {} {}", CoreShare(quota.cores_permille), quota.policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_grant_of_all_the_time_shows_no_guarantee() {
        let text = |cores_permille, policy| {
            let quota = Quota { cores_permille, policy, ..Quota::UNLIMITED };
            described(&quota)
        };
        assert_eq!(text(1000, Policy::Fixed), "whole GPU, no guarantee (what is left)");
        assert_eq!(text(300, Policy::Fixed), "whole GPU, 30 % fixed");
        assert_eq!(text(1000, Policy::Burst), "whole GPU, 100 % burst");
    }
}
