//! Scenarios of the demo.

use std::path::Path;
use std::time::Duration;

use vcuda_region::clock;

use super::checks::Checks;
use super::live::Live;
use super::output::Output;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::protocol::{Reply, Request};
use crate::fixture::record::{Record, Served};
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::Failure;
use vcuda_cli::render::TenantView;
use vcuda_quota::{CoreShare, MemorySize};

/// Allowed distance of a measured share from its cap (thousandths).
const TOLERANCE_PERMILLE: u32 = 50;
/// Time for limiter and manager to learn the tenants' kernels.
const WARM_UP: Duration = Duration::from_secs(2);
const MEASURE: Duration = Duration::from_secs(6);
const MEASURE_CHANGED: Duration = Duration::from_secs(4);
/// Time limit for the release of a dead process's memory.
const BACK_WITHIN: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);

/// Runs all scenarios and draws them into `svg`. Fails if the demo cannot continue; a claim that does not hold is a failed check.
pub(crate) fn play(
    fixture: &Fixture,
    interrupt: &Interrupt,
    output: Output,
    checks: &mut Checks,
    svg: Option<&Path>,
) -> Result<(), Failure> {
    let unit = fixture.unit_bytes();
    let record = Record::find(fixture)?;
    let live = Live::new(fixture, output);
    let mut demo = Demo { fixture, interrupt, output, checks, record, live, shown: Vec::new(), unit };
    let mut pair = demo.share()?;
    demo.memory_and_death()?;
    demo.change_cores(&mut pair)?;
    drop(pair);
    demo.everything_is_back()?;
    svg.map_or(Ok(()), |place| demo.live.history().draw(place))
}

/// The two tenants that saturate the GPU.
#[derive(Debug)]
struct Pair {
    a: Tenant,
    b: Tenant,
}

#[derive(Debug)]
struct Demo<'a> {
    fixture: &'a Fixture,
    interrupt: &'a Interrupt,
    output: Output,
    checks: &'a mut Checks,
    record: Record,
    live: Live<'a>,
    /// The tenants that were last shown.
    shown: Vec<TenantView>,
    unit: u64,
}

impl Demo<'_> {
    /// Checks the shares of two tenants that saturate the GPU.
    fn share(&mut self) -> Result<Pair, Failure> {
        let (small, large) = (MemorySize(4 * self.unit), MemorySize(8 * self.unit));
        self.say(&format!("Tenants a ({small}, 30 %) and b ({large}, 60 %) both try to take the whole GPU"))?;
        let mut a = self.fixture.tenant("a", Some(small), CoreShare(300))?;
        let mut b = self.fixture.tenant("b", Some(large), CoreShare(600))?;
        a.must(Request::Allocate { bytes: self.unit })?;
        b.must(Request::Allocate { bytes: 2 * self.unit })?;
        let work = a.work_of_a_millisecond()?;
        a.must(Request::Saturate { work })?;
        b.must(Request::Saturate { work })?;
        let mut pair = Pair { a, b };
        self.live.look()?;
        self.watch_for(WARM_UP)?;
        let shares = self.measure(&mut pair, MEASURE)?;
        self.check_share("a's share of GPU time, cap 30 %", 300, shares.0);
        self.check_share("b's share of GPU time, cap 60 %", 600, shares.1);
        let shown = self.shown.iter().map(|tenant| tenant.core_used_permille).sum();
        self.check_share("both together, as smi shows it", shares.0 + shares.1, shown);
        Ok(pair)
    }

    /// Checks the view of a third tenant, its refusals, and the memory of a killed process.
    fn memory_and_death(&mut self) -> Result<(), Failure> {
        let quota = MemorySize(4 * self.unit);
        self.say(&format!("Tenant c ({quota}) comes beside them"))?;
        let mut first = self.fixture.tenant("c", Some(quota), CoreShare::WHOLE)?;
        let cuda = first.ask(Request::Memory)?;
        let nvml = first.ask(Request::Nvml)?;
        self.check_total("CUDA's total memory in c", quota, &cuda);
        self.check_total("NVML's total memory in c", quota, &nvml);

        let too_much = MemorySize(quota.0 + self.unit);
        let reply = first.ask(Request::Allocate { bytes: too_much.0 })?;
        self.check_reply(&format!("c asks for {too_much} of {quota}"), &Reply::OutOfMemory, &reply);
        // Two of these allocations and contexts exceed the quota; one of each fits.
        let overhead = match cuda {
            Reply::Memory { free_bytes, total_bytes } => total_bytes.saturating_sub(free_bytes),
            _ => 0,
        };
        let part = self.rounded(quota.0.saturating_sub(2 * overhead) * 3 / 4);
        let reply = first.ask(Request::Allocate { bytes: part.0 })?;
        self.check_reply(&format!("c goes on and asks for {part}"), &Reply::Done, &reply);
        self.live.look()?;
        self.watch_for(SECOND)?;

        self.say("A second process joins c; the first is killed with SIGKILL")?;
        let mut second = self.fixture.join("c")?;
        let reply = second.ask(Request::Allocate { bytes: part.0 })?;
        self.check_reply(&format!("{part} while the first lives"), &Reply::OutOfMemory, &reply);
        let before = self.used_bytes("c")?;
        let gpu_before = self.gpu_used_bytes()?;
        let start_ns = clock::now_ns();
        first.kill()?;
        let back = self.until(start_ns, |demo| Ok(demo.used_bytes("c")? + part.0 <= before))?;
        self.check_back("memory back in c's quota", back);
        let back = self.until(start_ns, |demo| Ok(demo.gpu_used_bytes()? + part.0 <= gpu_before))?;
        self.check_back(&format!("memory back ({})", self.record.memory_source()), back);
        let back =
            self.until(start_ns, |_| Ok(second.ask(Request::Allocate { bytes: part.0 })? == Reply::Done))?;
        self.check_back(&format!("{part} for the second process"), back);

        self.watch_for(SECOND)?;
        self.change_memory(&mut second, quota)
    }

    /// Checks `vcuda set --memory`, up and down, on a running process.
    fn change_memory(&mut self, tenant: &mut Tenant, quota: MemorySize) -> Result<(), Failure> {
        self.say("vcuda set changes the quotas while the programs run")?;
        let free = quota.0.saturating_sub(self.used_bytes("c")?);
        let more = self.rounded(free + self.unit);
        let reply = tenant.ask(Request::Allocate { bytes: more.0 })?;
        self.check_reply(&format!("{more} more with {quota}"), &Reply::OutOfMemory, &reply);
        let raised = MemorySize(quota.0 + 2 * self.unit);
        self.fixture.vcuda(&["set", "c", "--memory", &format!("{}B", raised.0)])?;
        let reply = tenant.ask(Request::Allocate { bytes: more.0 })?;
        self.check_reply(&format!("{more} after set --memory {raised}"), &Reply::Done, &reply);
        let lowered = MemorySize(quota.0 / 2);
        self.fixture.vcuda(&["set", "c", "--memory", &format!("{}B", lowered.0)])?;
        let reply = tenant.ask(Request::Allocate { bytes: 1 << 20 })?;
        self.check_reply(&format!("1 MiB after set --memory {lowered}"), &Reply::OutOfMemory, &reply);
        Ok(())
    }

    /// Checks `vcuda set --cores`: the two tenants of the first scenario exchange their shares.
    fn change_cores(&mut self, pair: &mut Pair) -> Result<(), Failure> {
        self.say("a gets 60 %, b gets 30 %")?;
        self.fixture.vcuda(&["set", "b", "--cores", "30"])?;
        self.fixture.vcuda(&["set", "a", "--cores", "60"])?;
        self.watch_for(SECOND)?;
        let shares = self.measure(pair, MEASURE_CHANGED)?;
        self.check_share("a's share after set --cores 60", 600, shares.0);
        self.check_share("b's share after set --cores 30", 300, shares.1);
        Ok(())
    }

    /// Checks that without processes the GPU is as it was.
    fn everything_is_back(&mut self) -> Result<(), Failure> {
        let expected = self.fixture.gpu().memory_used_bytes + self.record.slack_bytes();
        let start_ns = clock::now_ns();
        let back = self.until(start_ns, |demo| {
            let is_empty = demo.live.look()?.gpus.iter().all(|gpu| gpu.tenants.is_empty());
            Ok(is_empty && demo.gpu_used_bytes()? <= expected)
        })?;
        self.check_back("at the end the GPU is as before", back);
        Ok(())
    }

    /// Shows the bars for some time.
    fn watch_for(&mut self, time: Duration) -> Result<(), Failure> {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(SECOND);
            self.interrupt.sleep(step)?;
            let snapshot = self.live.draw()?;
            self.shown = snapshot.gpus.into_iter().flat_map(|gpu| gpu.tenants).collect();
            left = left.saturating_sub(step);
        }
        Ok(())
    }

    /// Shares of both tenants over `time` (thousandths).
    fn measure(&mut self, pair: &mut Pair, time: Duration) -> Result<(u32, u32), Failure> {
        let [a_before, b_before] = self.served(pair)?;
        self.watch_for(time)?;
        let [a_after, b_after] = self.served(pair)?;
        Ok((permille(a_after.share_since(a_before)), permille(b_after.share_since(b_before))))
    }

    fn served(&self, pair: &mut Pair) -> Result<[Served; 2], Failure> {
        let a = self.record.served(self.fixture, &mut pair.a)?;
        Ok([a, self.record.served(self.fixture, &mut pair.b)?])
    }

    /// The size rounded down to a readable one.
    fn rounded(&self, bytes: u64) -> MemorySize {
        let grain = (self.unit / 4).max(1);
        MemorySize(bytes / grain * grain)
    }

    /// Memory that `vcuda smi` shows as used by the tenant.
    fn used_bytes(&mut self, name: &str) -> Result<u64, Failure> {
        let snapshot = self.live.look()?;
        let tenants = snapshot.gpus.iter().flat_map(|gpu| &gpu.tenants);
        Ok(tenants.filter(|tenant| tenant.name == name).map(|tenant| tenant.memory_used_bytes).sum())
    }

    /// Memory taken of the GPU itself, by the simulator's record or the host's NVML (bytes).
    fn gpu_used_bytes(&self) -> Result<u64, Failure> {
        let gpus = self.fixture.inventory().gpus()?;
        let own = gpus.iter().find(|gpu| gpu.uuid == self.fixture.gpu().uuid);
        Ok(own.map_or(0, |gpu| gpu.memory_used_bytes))
    }

    /// Time from `start_ns` until the condition held; `None` if it did not within the limit.
    fn until(
        &mut self,
        start_ns: u64,
        mut holds: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<Option<Duration>, Failure> {
        loop {
            let is_met = holds(self)?;
            let gone = Duration::from_nanos(clock::now_ns().saturating_sub(start_ns));
            if is_met {
                return Ok(Some(gone));
            }
            if gone > BACK_WITHIN * 2 {
                return Ok(None);
            }
            self.interrupt.sleep(Duration::from_millis(5))?;
        }
    }

    fn check_share(&mut self, claim: &str, expected: u32, measured: u32) {
        let is_met = measured.abs_diff(expected) <= TOLERANCE_PERMILLE;
        let percent = |permille: u32| format!("{}.{} %", permille / 10, permille % 10);
        self.checks.add_timed(claim, format!("{} +- 5", percent(expected)), percent(measured), is_met);
    }

    fn check_total(&mut self, claim: &str, quota: MemorySize, reply: &Reply) {
        match reply {
            Reply::Memory { total_bytes, .. } => {
                let total = MemorySize(*total_bytes);
                self.checks.add(claim, quota.to_string(), total.to_string(), total == quota);
            }
            other => self.checks.add(claim, quota.to_string(), format!("{other:?}"), false),
        }
    }

    fn check_reply(&mut self, claim: &str, expected: &Reply, reply: &Reply) {
        let wanted = if *expected == Reply::Done { "allocated" } else { "refused" };
        let got = match reply {
            Reply::Done => "allocated".to_owned(),
            Reply::OutOfMemory => "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
            other => format!("{other:?}"),
        };
        self.checks.add(claim, wanted, got, reply == expected);
    }

    fn check_back(&mut self, claim: &str, back: Option<Duration>) {
        let measured = back.map_or_else(|| "not back".to_owned(), |time| format!("{} ms", time.as_millis()));
        match back {
            Some(time) => self.checks.add_timed(claim, "within 1000 ms", measured, time <= BACK_WITHIN),
            None => self.checks.add(claim, "within 1000 ms", measured, false),
        }
    }

    /// Prints a heading below the table.
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        self.live.leave();
        self.output.say(format_args!("\n{text}"))
    }
}

/// A share as thousandths.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is not negative, and one beyond what fits is no share"
)]
fn permille(share: f64) -> u32 {
    (share * 1000.0) as u32
}
