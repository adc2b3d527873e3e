//! How much of the GPU each tenant gets: promises first, then by priority, policy and weight, and never nothing.

use core::cmp::Reverse;

use vcuda_quota::{DeviceConfig, Policy, Priority};

/// What tenants have together that would otherwise get nothing (thousandths of the GPU): the bound on starvation. It is
/// taken from all others in proportion, so that a promise is kept to 99 percent at least.
pub const FLOOR_PERMILLE: u32 = 10;

/// What the controller knows of one tenant on one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// How it competes.
    pub policy: Policy,
    /// Its share that is always there (thousandths).
    pub guarantee_permille: u32,
    /// Its share that is never exceeded (thousandths).
    pub cap_permille: u32,
    /// Its weight when time is divided that nobody was promised.
    pub weight: u32,
    /// Who comes first where there is not enough.
    pub priority: Priority,
    /// What it could use now (thousandths), see [`super::Activity::demand_permille`].
    pub demand_permille: u32,
}

impl Contender {
    /// One with this configuration and demand.
    #[must_use]
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

    /// What it has a right to (thousandths). A fixed share of the whole GPU is none: it is all that others leave.
    fn promise(&self) -> u32 {
        match self.policy {
            Policy::Fixed if self.cap_permille < 1000 => self.cap_permille,
            Policy::Burst => self.guarantee_permille.min(self.cap_permille),
            Policy::Fixed | Policy::BestEffort => 0,
        }
    }

    /// In which order time is given out that nobody was promised.
    fn rank(&self) -> (Reverse<Priority>, usize) {
        let policy = Policy::ALL.iter().position(|policy| *policy == self.policy);
        (Reverse(self.priority), policy.unwrap_or(Policy::ALL.len()))
    }
}

/// The rate of each tenant (thousandths of the GPU): what it gets if it wants all it can have, while each of the others
/// uses what it could use now. So one that is idle finds its rate ready when it begins.
///
/// What tenants demand of their promises comes first: the cap of `fixed` below the whole GPU, the guarantee of `burst`.
/// Where promises are more than the GPU, a higher priority has its own first, and equals are cut in proportion. The rest
/// goes by priority, among equals first to `fixed` of the whole GPU, then to `burst` up to its cap, then to `best-effort`,
/// among these by weight. Who demands time and would get none has its part of [`FLOOR_PERMILLE`].
///
/// What tenants use, each the lesser of rate and demand, is never more than the GPU; where one who is content would pay
/// for the starved, more by the floor, or by a thousandth for each of more than [`FLOOR_PERMILLE`] starved.
#[must_use]
pub fn rates(contenders: &[Contender]) -> Vec<u32> {
    let now = allot(contenders);
    let fed = feed_the_starved(contenders, now.clone());
    let mut asking = contenders.to_vec();
    let mut rates = Vec::with_capacity(contenders.len());
    for (place, ((one, now), fed)) in contenders.iter().zip(now).zip(fed).enumerate() {
        // Who does not get what it demands would get no more by demanding more.
        let rate = if now < one.demand_permille {
            fed
        } else {
            set_demand(&mut asking, place, 1000);
            let full = allot(&asking);
            let full = feed_the_starved(&asking, full).get(place).copied();
            set_demand(&mut asking, place, one.demand_permille);
            full.unwrap_or(fed)
        };
        // A rate of nothing would hold a tenant for ever.
        rates.push(rate.clamp(1, one.cap_permille.max(1)));
    }
    rates
}

fn set_demand(contenders: &mut [Contender], place: usize, permille: u32) {
    if let Some(one) = contenders.get_mut(place) {
        one.demand_permille = permille;
    }
}

/// What each tenant gets of what it demands.
fn allot(contenders: &[Contender]) -> Vec<u32> {
    let wants = wants_of(contenders);
    let due: Vec<u32> = contenders
        .iter()
        .zip(&wants)
        .map(|(one, want)| one.promise().min(*want))
        .collect();
    let mut given = vec![0; contenders.len()];
    let mut left = 1000;
    for priority in Priority::ALL.into_iter().rev() {
        left -= share_out(contenders, &due, &mut given, left, |one| {
            if one.priority == priority {
                one.promise()
            } else {
                0
            }
        });
    }
    let mut ranks: Vec<_> = contenders.iter().map(Contender::rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        left -= share_out(contenders, &wants, &mut given, left, |one| {
            if one.rank() == rank { one.weight } else { 0 }
        });
    }
    given
}

/// What each could use and may have (thousandths).
fn wants_of(contenders: &[Contender]) -> Vec<u32> {
    contenders
        .iter()
        .map(|one| one.demand_permille.min(one.cap_permille))
        .collect()
}

/// Divides `left` by weight, to none more than it wants. Returns what was given out.
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
                // At least one, or the last few thousandths would go round for ever.
                let part = u32::try_from(u64::from(rest) * weight / weights).unwrap_or(rest);
                let part = part.max(1).min(rest - round).min(*want - *given);
                *given += part;
                round += part;
            }
        }
        handed += round;
    }
}

/// Gives those who want time and have less than their part of the floor that part, from those who have more than all of it.
fn feed_the_starved(contenders: &[Contender], mut given: Vec<u32>) -> Vec<u32> {
    let least: Vec<u32> = wants_of(contenders)
        .iter()
        .map(|want| FLOOR_PERMILLE.min(*want))
        .collect();
    let count = least
        .iter()
        .zip(&given)
        .filter(|(least, given)| given < least)
        .count();
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
