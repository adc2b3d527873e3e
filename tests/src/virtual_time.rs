//! Shares of GPU time in virtual time: exact, and independent of other load.

use std::path::Path;

use vcuda_benches::lab::{Lab, Load};

const SECOND_NS: u64 = 1_000_000_000;

/// Starts tenants on a new machine one after the other, each with `vcuda run`'s options and its program's arguments.
///
/// # Panics
/// Panics without a release build, or if a tenant does not start.
pub fn lab(machine: &str, program: &Path, tenants: &[(&[&str], &[&str])]) -> Lab {
    let mut lab = Lab::new(program, machine).unwrap();
    for (quota, arguments) in tenants {
        let load = Load { quota, program: arguments, processes: 1 };
        lab.start(load).unwrap();
    }
    lab.run_for(SECOND_NS).unwrap();
    lab
}

/// GPU time of each process in this time from now on (ns).
///
/// # Panics
/// Panics if a tenant hangs.
pub fn service_ns(lab: &Lab, span_ns: u64) -> Vec<u64> {
    let before = lab.service_ns().unwrap().concat();
    lab.run_for(span_ns).unwrap();
    let after = lab.service_ns().unwrap().concat();
    after.iter().zip(&before).map(|(after, before)| after - before).collect()
}

/// Share of each tenant in the next two seconds (percent of the GPU).
///
/// # Panics
/// Panics if a tenant hangs.
pub fn shares(lab: &Lab) -> Vec<f64> {
    let windows = lab.windows(1, 2 * SECOND_NS).unwrap();
    windows.iter().map(|shares| shares[0] * 100.0).collect()
}
