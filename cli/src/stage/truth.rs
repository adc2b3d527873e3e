//! What a stage's tenants really got, by somebody else's word than the shim's.

use super::protocol::{Reply, Request};
use super::{Stage, Tenant};
use crate::failure::Failure;
use crate::gpus::Inventory;

/// GPU time that a tenant had got at a moment (both ns).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) served_ns: u64,
    pub(crate) at_ns: u64,
}

impl Served {
    /// Time got over time gone.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of hours are exact")]
    pub(crate) fn share_since(self, before: Served) -> f64 {
        let served = self.served_ns.saturating_sub(before.served_ns);
        let gone = self.at_ns.saturating_sub(before.at_ns).max(1);
        served as f64 / gone as f64
    }
}

/// Who tells what a tenant really got.
#[derive(Debug)]
pub(crate) enum Truth {
    /// The simulated machine's exact record.
    Record,
    /// Finished work, at the rate that the GPU reached for one program alone.
    Work {
        /// That rate.
        iterations_per_ms: u64,
    },
}

impl Truth {
    pub(crate) fn find(stage: &Stage) -> Result<Truth, Failure> {
        match stage.inventory() {
            Inventory::Simulated(_) => Ok(Truth::Record),
            Inventory::Real(_) => Ok(Truth::Work {
                iterations_per_ms: calibrate(stage)?,
            }),
        }
    }

    /// What the tenant has got so far.
    pub(crate) fn served(&self, stage: &Stage, tenant: &mut Tenant) -> Result<Served, Failure> {
        match (self, stage.inventory()) {
            (Truth::Work { iterations_per_ms }, _) => match tenant.ask(Request::Count)? {
                Reply::Count { iterations, at_ns } => {
                    let ns = u128::from(iterations) * 1_000_000 / u128::from(*iterations_per_ms);
                    Ok(Served {
                        served_ns: u64::try_from(ns).unwrap_or(u64::MAX),
                        at_ns,
                    })
                }
                other => Err(Failure::Failed(format!("asked for a count, got {other:?}"))),
            },
            (Truth::Record, Inventory::Simulated(machine)) => {
                let report = machine.report();
                let rows = report
                    .processes
                    .iter()
                    .filter(|row| row.alive && row.pid == tenant.pid());
                let served_ns = rows.map(|row| row.service_ns).sum();
                Ok(Served {
                    served_ns,
                    at_ns: machine.now_ns(),
                })
            }
            (Truth::Record, Inventory::Real(_)) => {
                Err(Failure::Failed("a real GPU keeps no record".to_owned()))
            }
        }
    }
}

/// Iterations of `vcuda_work` per millisecond of the GPU, of one program alone and without the shim.
pub(crate) fn calibrate(stage: &Stage) -> Result<u64, Failure> {
    match stage.bare("calibration")?.ask(Request::Calibrate)? {
        Reply::Calibrated { iterations_per_ms } => Ok(iterations_per_ms),
        other => Err(Failure::Failed(format!(
            "asked for the GPU's rate, got {other:?}"
        ))),
    }
}

impl Truth {
    /// By how much the card's use may differ for reasons of its own: a real driver keeps some memory while it is awake.
    pub(crate) fn slack_bytes(&self) -> u64 {
        match self {
            Truth::Record => 0,
            Truth::Work { .. } => 64 << 20,
        }
    }

    /// Who tells that memory is back.
    pub(crate) fn witness(&self) -> &'static str {
        match self {
            Truth::Record => "exact record",
            Truth::Work { .. } => "host's NVML",
        }
    }
}
