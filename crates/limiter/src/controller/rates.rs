//! The rate of each tenant: guarantees first, then by priority, policy and weight, and at least a part of the floor.

use core::cmp::Reverse;

use vcuda_quota::{DeviceConfig, Policy, Priority};

/// Floor: GPU time for all tenants together that would otherwise starve (thousandths of the GPU). It is taken from the others in
/// proportion, so that a guarantee is met to at least 99 percent.
pub const FLOOR_PERMILLE: u32 = 10;

/// A tenant on a GPU, with its quota and demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// Policy of the quota.
    pub policy: Policy,
    /// Guaranteed share (thousandths).
    pub guarantee_permille: u32,
    /// Largest share (thousandths).
    pub cap_permille: u32,
    /// Weight in the division of time beyond the guarantees.
    pub weight: u32,
    /// Priority if there is not enough time.
    pub priority: Priority,
    /// Demand (thousandths), see [`super::Activity::demand_permille`].
    pub demand_permille: u32,
}

impl Contender {
    /// Creates a contender with this configuration and demand.
    pub fn new(config: &DeviceConfig, demand_permille: u32) -> Self {
        Self {
            policy: config.policy,
            guarantee_permille: config.guarantee_permille,
            cap_permille: config.cap_permille,
            weight: config.weight,
            priority: config.priority,
            demand_permille,
        }
    }

    /// Guarantee (thousandths). `fixed` with the whole GPU has none: it gets the time that others leave.
    fn promise(&self) -> u32 {
        match self.policy {
            Policy::Fixed if self.cap_permille < 1000 => self.cap_permille,
            Policy::Burst => self.guarantee_permille.min(self.cap_permille),
            Policy::Fixed | Policy::BestEffort => 0,
        }
    }

    /// Order in the division of time beyond the guarantees: lower is first.
    fn rank(&self) -> (Reverse<Priority>, usize) {
        let policy = Policy::ALL.iter().position(|policy| *policy == self.policy);
        (Reverse(self.priority), policy.unwrap_or(Policy::ALL.len()))
    }
}

/// The rate of each tenant (thousandths of the GPU): the share that it gets if it uses all it can, while each of the others uses
/// its present demand. So the rate of an idle tenant is ready when it begins.
///
/// Demanded guarantees come first: the cap of `fixed` below the whole GPU, and the guarantee of `burst`. If guarantees exceed the
/// GPU, higher priorities are served first, and equal ones are cut in proportion. The rest goes by priority; within a priority
/// first to `fixed` of the whole GPU, then to `burst` up to its cap, then to `best-effort`; among these by weight. A tenant that
/// demands time and would get none gets its part of [`FLOOR_PERMILLE`].
///
/// The sum of the use, which is the lesser of rate and demand, never exceeds the GPU. There is an exception if a satisfied tenant
/// would have to pay for starving ones: then it exceeds the GPU by the floor, or by a thousandth for each of more than
/// [`FLOOR_PERMILLE`] starving tenants.
pub fn rates(contenders: &[Contender]) -> Vec<u32> {
    let now = allot(contenders);
    let fed = feed_the_starved(contenders, now.clone());
    let mut asking = contenders.to_vec();
    let mut rates = Vec::with_capacity(contenders.len());
    for (place, ((one, now), fed)) in contenders.iter().zip(now).zip(fed).enumerate() {
        // A tenant that does not get its demand would not get more by demanding more.
        let rate = if now < one.demand_permille {
            fed
        } else {
            set_demand(&mut asking, place, 1000);
            let full = allot(&asking);
            let full = feed_the_starved(&asking, full).get(place).copied();
            set_demand(&mut asking, place, one.demand_permille);
            full.unwrap_or(fed)
        };
        // With a rate of 0 a launch would wait for ever.
        rates.push(rate.clamp(1, one.cap_permille.max(1)));
    }
    rates
}

fn set_demand(contenders: &mut [Contender], place: usize, permille: u32) {
    if let Some(one) = contenders.get_mut(place) {
        one.demand_permille = permille;
    }
}

/// Share of each tenant at its present demand (thousandths).
fn allot(contenders: &[Contender]) -> Vec<u32> {
    let wants = wants_of(contenders);
    let due: Vec<u32> = contenders.iter().zip(&wants).map(|(one, want)| one.promise().min(*want)).collect();
    let mut given = vec![0; contenders.len()];
    let mut left = 1000;
    for priority in Priority::ALL.into_iter().rev() {
        left -= share_out(contenders, &due, &mut given, left, |one| {
            if one.priority == priority { one.promise() } else { 0 }
        });
    }
    let mut ranks: Vec<_> = contenders.iter().map(Contender::rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        left -=
            share_out(
                contenders,
                &wants,
                &mut given,
                left,
                |one| {
                    if one.rank() == rank { one.weight } else { 0 }
                },
            );
    }
    given
}

/// Demand of each tenant, bounded by its cap (thousandths).
fn wants_of(contenders: &[Contender]) -> Vec<u32> {
    contenders.iter().map(|one| one.demand_permille.min(one.cap_permille)).collect()
}

/// Divides `left` by weight; no tenant gets more than it wants. Returns the divided amount (thousandths).
fn share_out(
    contenders: &[Contender],
    wants: &[u32],
    given: &mut [u32],
    left: u32,
    weight: impl Fn(&Contender) -> u32,
) -> u32 {
    let mut handed = 0;
    loop {
        let open: Vec<u64> = contenders
            .iter()
            .zip(wants)
            .zip(given.iter())
            .map(|((one, want), given)| if given < want { u64::from(weight(one)) } else { 0 })
            .collect();
        let weights: u64 = open.iter().sum();
        let rest = left - handed;
        if weights == 0 || rest == 0 {
            return handed;
        }
        let mut round = 0;
        for ((weight, want), given) in open.into_iter().zip(wants).zip(given.iter_mut()) {
            if weight > 0 {
                // At least 1, as else the last thousandths would never be divided.
                let part = u32::try_from(u64::from(rest) * weight / weights).unwrap_or(rest);
                let part = part.max(1).min(rest - round).min(*want - *given);
                *given += part;
                round += part;
            }
        }
        handed += round;
    }
}

/// Raises tenants that want time to their part of the floor. Tenants that have more than the whole floor pay for it.
fn feed_the_starved(contenders: &[Contender], mut given: Vec<u32>) -> Vec<u32> {
    let least: Vec<u32> = wants_of(contenders).iter().map(|want| FLOOR_PERMILLE.min(*want)).collect();
    let count = least.iter().zip(&given).filter(|(least, given)| given < least).count();
    let part = FLOOR_PERMILLE / u32::try_from(count.max(1)).unwrap_or(FLOOR_PERMILLE);
    let mut owed = 0;
    for (least, given) in least.iter().zip(given.iter_mut()) {
        let wanted = part.max(1).min(*least).max(*given);
        owed += wanted - *given;
        *given = wanted;
    }
    let mut rest: u32 = given.iter().filter(|given| **given > FLOOR_PERMILLE).sum();
    for given in given.iter_mut().filter(|given| **given > FLOOR_PERMILLE) {
        let had = *given;
        let part = (owed * had).div_ceil(rest.max(1)).min(owed);
        *given -= part;
        owed -= part;
        rest -= had;
    }
    given
}

#[cfg(test)]
mod tests;
