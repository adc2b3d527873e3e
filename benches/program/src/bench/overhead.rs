//! Cost of the shim per call: the same program with and without it, in alternation.

use std::time::Duration;

use vcuda_figures::median;

use super::plan::Plan;
use super::report::OverheadReport;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::protocol::{Call, Reply, Request};
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::Failure;
use vcuda_quota::{CoreShare, MemorySize};

/// Duration of a launched kernel (ns), short enough that the launching thread never waits.
const KERNEL_NS: u64 = 1000;
const ALLOCATION_BYTES: u32 = 4096;

/// A call, and the quota for it.
#[derive(Debug)]
pub(super) struct Subject {
    /// Name in the report.
    pub(super) name: &'static str,
    is_launch: bool,
    cores: CoreShare,
    has_memory_limit: bool,
}

pub(super) const SUBJECTS: [Subject; 3] = [
    Subject { name: "launch, no limit", is_launch: true, cores: CoreShare::WHOLE, has_memory_limit: false },
    Subject {
        name: "launch, within a share of 90 %",
        is_launch: true,
        cores: CoreShare(900),
        has_memory_limit: false,
    },
    Subject {
        name: "allocate + free 4 KiB, memory limit",
        is_launch: false,
        cores: CoreShare::WHOLE,
        has_memory_limit: true,
    },
];

/// Cost of a call (ns).
#[derive(Clone, Copy, Debug)]
struct Cost {
    mean: f64,
    p99: f64,
}

/// Measurement of the subjects.
#[derive(Debug)]
pub(super) struct Overhead<'a> {
    pub(super) plan: &'a Plan,
    pub(super) fixture: &'a Fixture,
    pub(super) interrupt: &'a Interrupt,
    pub(super) iterations_per_ms: u64,
}

impl Overhead<'_> {
    /// Medians over the pairs for one subject.
    pub(super) fn row(&self, subject: &Subject) -> Result<OverheadReport, Failure> {
        let memory = subject.has_memory_limit.then(|| MemorySize(4 * self.fixture.unit_bytes()));
        let call = if subject.is_launch {
            Call::Launch { iterations: (KERNEL_NS * self.iterations_per_ms / 1_000_000).max(1) }
        } else {
            Call::AllocateAndFree { bytes: ALLOCATION_BYTES }
        };
        let mut bare = self.fixture.bare("bare")?;
        let mut tenant = self.fixture.tenant(subject.name_of_tenant(), memory, subject.cores)?;
        let mut pairs = Vec::new();
        for _ in 0..self.plan.pairs {
            self.interrupt.sleep(Duration::ZERO)?;
            pairs.push((self.time(&mut bare, call)?, self.time(&mut tenant, call)?));
        }
        let of = |value: fn(&(Cost, Cost)) -> f64| median(pairs.iter().map(value).collect());
        Ok(OverheadReport {
            call: subject.name,
            pairs: self.plan.pairs,
            without_shim_ns: of(|pair| pair.0.mean),
            with_shim_ns: of(|pair| pair.1.mean),
            added_ns: of(|pair| pair.1.mean - pair.0.mean),
            without_shim_p99_ns: of(|pair| pair.0.p99),
            with_shim_p99_ns: of(|pair| pair.1.p99),
            added_p99_ns: of(|pair| pair.1.p99 - pair.0.p99),
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "picoseconds of a call")]
    fn time(&self, program: &mut Tenant, call: Call) -> Result<Cost, Failure> {
        let parts = self.plan.parts;
        match program.ask(Request::Time { call, parts })? {
            Reply::Timed { ps_per_call, p99_ns } => {
                Ok(Cost { mean: ps_per_call as f64 / 1000.0, p99: p99_ns as f64 })
            }
            other => Err(Failure::Failed(format!("asked for the cost of a call, got {other:?}"))),
        }
    }
}

impl Subject {
    /// The name in characters that a tenant's name may have.
    fn name_of_tenant(&self) -> &'static str {
        match (self.is_launch, self.cores) {
            (false, _) => "bench-allocate",
            (true, CoreShare::WHOLE) => "bench-unlimited",
            (true, _) => "bench-launch",
        }
    }
}
