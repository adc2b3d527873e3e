//! First scenario: the same programs without vcuda. Only on the simulated GPU, as on a real one it would take the memory of others.

use std::time::Duration;

use super::checks::Checks;
use super::output::Output;
use crate::fixture::interrupt::Interrupt;
use crate::fixture::protocol::{Reply, Request};
use crate::fixture::record::Record;
use crate::fixture::{Fixture, Tenant};
use vcuda_cli::failure::Failure;
use vcuda_quota::MemorySize;

/// Time over which the shares are measured.
const MEASURE: Duration = Duration::from_secs(2);
/// Processes with which b takes GPU time.
const PROCESSES: usize = 3;

/// Runs the scenario.
pub(super) fn play(
    fixture: &Fixture,
    interrupt: &Interrupt,
    output: Output,
    checks: &mut Checks,
) -> Result<(), Failure> {
    if !fixture.is_simulated() {
        return output.say("\nWithout vcuda, b could take all that others use here: not shown on a real GPU");
    }
    output.say("\nWithout vcuda: b takes what it can, with three processes")?;
    let mut a = fixture.bare("a")?;
    let mut b: Vec<Tenant> = (0..PROCESSES).map(|_| fixture.bare("b")).collect::<Result<_, _>>()?;
    let work = a.work_of_a_millisecond()?;
    for program in b.iter_mut().chain([&mut a]) {
        program.must(Request::Saturate { work })?;
    }
    let before = Record::Record.served(fixture, &mut a)?;
    interrupt.sleep(MEASURE)?;
    let share = Record::Record.served(fixture, &mut a)?.share_since(before);
    checks.add_timed(
        "without vcuda: a's share of time",
        "one quarter",
        format!("{:.1} %", share * 100.0),
        share < 0.3,
    );
    let taken = b.first_mut().map_or(Ok(0), |b| take_all(b, fixture.unit_bytes()))?;
    output.say(format_args!("   b allocates until nothing is left: {}", MemorySize(taken)))?;
    let reply = a.ask(Request::Allocate { bytes: fixture.unit_bytes() })?;
    let answer = if reply == Reply::OutOfMemory {
        "CUDA_ERROR_OUT_OF_MEMORY".to_owned()
    } else {
        format!("{reply:?}")
    };
    checks.add("without vcuda: a asks for memory", "refused", answer, reply == Reply::OutOfMemory);
    let start = fixture.bare("c").map(drop);
    checks.add(
        "without vcuda: c starts",
        "fails",
        if start.is_err() { "fails" } else { "starts" },
        start.is_err(),
    );
    Ok(())
}

/// Allocates until the driver refuses, in ever smaller pieces (bytes taken).
fn take_all(program: &mut Tenant, unit: u64) -> Result<u64, Failure> {
    let (mut taken, mut bytes) = (0, unit);
    while bytes >= 1 << 20 {
        match program.ask(Request::Allocate { bytes })? {
            Reply::Done => taken += bytes,
            _ => bytes /= 2,
        }
    }
    Ok(taken)
}
