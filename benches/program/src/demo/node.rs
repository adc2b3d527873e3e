//! Second scenario: the same GPU under a node's manager, which is killed in the middle.

use std::thread::sleep;
use std::time::Duration;

use vcuda_quota::{CoreShare, MemorySize};
use vcuda_region::clock;

use super::checks::Checks;
use super::output::Output;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::manager::Manager;
use crate::fixture::protocol::{Reply, Request};
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::Failure;
use vcuda_cli::manager_client::view;
use vcuda_cli::render::{self, TenantView};

/// Time for limiter and manager to learn the tenants' kernels, and duration of a measurement.
const WARM_UP: Duration = Duration::from_secs(2);
const LOOKS: u32 = 3;
const SECOND: Duration = Duration::from_secs(1);
/// Allowed distance of a share from its cap (thousandths).
const TOLERANCE_PERMILLE: u32 = 50;
/// Time limit for the processes to register again.
const BACK_WITHIN: Duration = Duration::from_secs(5);

/// Runs the scenario; skipped if no manager is installed beside this program.
pub(crate) fn play(
    fixture: &Fixture,
    interrupt: &Interrupt,
    output: Output,
    checks: &mut Checks,
) -> Result<(), Failure> {
    let Some(manager) = Manager::start(fixture)? else {
        return output.say("\nvcuda-manager is not beside this program: its scenario is left out");
    };
    output.say("\nA node's manager grants d (30 %) and e (60 %) their parts")?;
    NodeScenario { fixture, interrupt, output, checks, manager }.play()
}

struct NodeScenario<'a> {
    fixture: &'a Fixture,
    interrupt: &'a Interrupt,
    output: Output,
    checks: &'a mut Checks,
    manager: Manager<'a>,
}

impl NodeScenario<'_> {
    fn play(mut self) -> Result<(), Failure> {
        let unit = self.fixture.unit_bytes();
        let quota = MemorySize(4 * unit);
        for (name, memory, cores) in [("d", quota.0, "30"), ("e", 8 * unit, "60")] {
            let (memory, gpu) = (format!("{memory}B"), self.fixture.gpu().uuid.to_string());
            let arguments = ["grant", "create", name, "--memory", &memory, "--cores", cores, "--gpu", &gpu];
            self.fixture.vcuda(&arguments)?;
        }
        let (mut d, mut e) = (self.fixture.granted("d")?, self.fixture.granted("e")?);
        self.shares(&mut d, &mut e)?;

        let more = Request::Allocate { bytes: quota.0 };
        self.check_reply(&format!("d asks for {quota}"), &Reply::OutOfMemory, &d.ask(more)?);
        let raised = MemorySize(6 * unit);
        self.fixture.vcuda(&["grant", "resize", "d", "--memory", &format!("{}B", raised.0)])?;
        let what = format!("{quota} after grant resize {raised}");
        self.check_reply(&what, &Reply::Done, &d.ask(more)?);

        self.restart(&mut d, raised)?;
        for (tenant, name) in [(d, "d"), (e, "e")] {
            tenant.kill()?;
            self.released(name)?;
        }
        let NodeScenario { manager, checks, .. } = self;
        let is_well = manager.end()?;
        let said = if is_well { "status 0" } else { "another status" };
        checks.add("the manager ends on SIGTERM", "status 0", said, is_well);
        Ok(())
    }

    /// Kills the manager and starts it again: the quota of `d` holds meanwhile, and both tenants register again.
    fn restart(&mut self, d: &mut Tenant, raised: MemorySize) -> Result<(), Failure> {
        self.output.say("The manager is killed with SIGKILL, and started again")?;
        self.manager.kill()?;
        let reply = d.ask(Request::Allocate { bytes: 3 * self.fixture.unit_bytes() })?;
        self.check_reply("d's quota without a manager", &Reply::OutOfMemory, &reply);
        self.manager.start_again()?;
        let start_ns = clock::now_ns();
        let back = loop {
            let is_back = self.metric("vcuda_shim_attached", "d-1")? > 0.5
                && self.metric("vcuda_shim_attached", "e-2")? > 0.5;
            let gone = Duration::from_nanos(clock::now_ns().saturating_sub(start_ns));
            if is_back || gone > BACK_WITHIN {
                break is_back.then_some(gone);
            }
            self.interrupt.sleep(Duration::from_millis(50))?;
        };
        self.checks.add(
            "both registered again",
            "within 5000 ms",
            back.map_or_else(|| "not yet".to_owned(), |time| format!("{} ms", time.as_millis())),
            back.is_some(),
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of bytes below 2^53"
        )]
        let limit_bytes = self.metric("vcuda_container_memory_limit_bytes", "d-1")? as u64;
        self.checks.add(
            "d's limit in the metrics",
            raised.to_string(),
            MemorySize(limit_bytes).to_string(),
            limit_bytes == raised.0,
        );
        Ok(())
    }

    /// Checks the shares that the manager reports while both tenants saturate the GPU.
    fn shares(&mut self, d: &mut Tenant, e: &mut Tenant) -> Result<(), Failure> {
        let work = d.work_of_a_millisecond()?;
        d.must(Request::Saturate { work })?;
        e.must(Request::Saturate { work })?;
        self.interrupt.sleep(WARM_UP)?;
        let mut sums = [0, 0];
        for look in 0..LOOKS {
            self.interrupt.sleep(SECOND)?;
            let snapshot = view::snapshot(&self.manager.node()?)?;
            if look + 1 == LOOKS {
                self.output.write(render::table(&snapshot, self.output.is_terminal()))?;
            }
            let tenants: Vec<TenantView> = snapshot.gpus.into_iter().flat_map(|gpu| gpu.tenants).collect();
            for (sum, id) in sums.iter_mut().zip(["d-1", "e-2"]) {
                *sum += tenants
                    .iter()
                    .find(|tenant| tenant.name == id)
                    .map_or(0, |tenant| tenant.core_used_permille);
            }
        }
        for ((name, cap), sum) in [("d", 300), ("e", 600)].into_iter().zip(sums) {
            let share = sum / LOOKS;
            self.checks.add_timed(
                &format!("{name}'s share, by the manager"),
                format!("{} +- 5", CoreShare(cap)),
                format!("{}.{} %", share / 10, share % 10),
                share.abs_diff(cap) <= TOLERANCE_PERMILLE,
            );
        }
        Ok(())
    }

    /// The value of a tenant's series.
    fn metric(&self, name: &str, container: &str) -> Result<f64, Failure> {
        let page = self.manager.metrics()?;
        let (beginning, label) = (format!("{name}{{"), format!("container=\"{container}\""));
        let line = page.lines().find(|line| line.starts_with(&beginning) && line.contains(&label));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.ok_or_else(|| Failure::Failed(format!("the metrics have no {name} of {container}")))
    }

    /// Checks that the manager notices the death of a grant's last process.
    fn released(&self, name: &str) -> Result<(), Failure> {
        let mut outcome = self.fixture.vcuda(&["grant", "release", name]);
        for _ in 0..50 {
            if outcome.is_ok() {
                break;
            }
            sleep(Duration::from_millis(50));
            outcome = self.fixture.vcuda(&["grant", "release", name]);
        }
        outcome
    }

    fn check_reply(&mut self, claim: &str, expected: &Reply, reply: &Reply) {
        let words = |reply: &Reply| match reply {
            Reply::Done => "allocated".to_owned(),
            Reply::OutOfMemory => "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
            other => format!("{other:?}"),
        };
        self.checks.add(claim, words(expected), words(reply), reply == expected);
    }
}
