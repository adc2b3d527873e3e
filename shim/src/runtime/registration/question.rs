//! Questions to the manager about NVML's figure for this process. The manager sees every process of the node by its
//! host PID; a process in a container often sees none.
//!
//! A question waits at most [`WAIT_MAX_NS`] and keeps no descriptor. None is asked while a stream capture is open
//! (I5). If a manager does not answer, the pause before the next question doubles each time. A manager of the
//! previous release, which does not know the question, is asked again a minute later.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::os::unix::ffi::OsStrExt as _;

use vcuda_region::GpuUuid;
use vcuda_region::registration::{Answer, Hello, ProcessMemory, Question, REPLY_BYTES, Reply};

use super::{Connection, address_in};
use crate::runtime::capture;
use crate::runtime::shim::Shim;
use vcuda_region::clock::now_ns;

/// The longest wait for an answer (ns).
const WAIT_MAX_NS: u64 = 250_000_000;
/// Shortest time between two questions, by their urgency (ns). All processes of a tenant together may ask a hundred
/// times a second in the long run.
const SOON_NS: u64 = 200_000_000;
const LATER_NS: u64 = 1_000_000_000;
/// Pause before a question without an answer is asked again (ns).
const UNTOLD_NS: u64 = 100_000_000;
/// Pause after which a manager that did not answer is asked again (ns). It doubles each time, at most
/// [`MOST_DOUBLINGS`] times.
const AGAIN_NS: u64 = 2_000_000_000;
const MOST_DOUBLINGS: u32 = 5;
/// Pause after which a manager that does not know the question is asked again (ns).
const IGNORANT_NS: u64 = 60_000_000_000;

/// The urgency of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// A context was made or ended.
    Now,
    /// Code was loaded or unloaded. If it is not asked now, a later look finds it.
    Soon,
    /// Something may have changed.
    Later,
}

/// The times at which the manager may be asked.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    /// Time of the last question (ns).
    asked_ns: AtomicU64,
    /// Time before which no question is asked (ns).
    again_ns: AtomicU64,
    /// Number of questions in a row without an answer.
    silences: AtomicU32,
}

/// The result of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// An answer.
    Told(ProcessMemory),
    /// There is no manager, or it cannot be reached.
    Absent,
    /// No answer in time, or an invalid one.
    Silent,
    /// The manager does not know the question.
    Ignorant,
}

impl Pacing {
    /// Asks the manager for NVML's figure for this process on a GPU. Unknown if it is not yet time to ask.
    pub(crate) fn ask(&self, shim: &'static Shim, gpu: &GpuUuid, haste: Haste) -> ProcessMemory {
        if capture::any_open() || !self.may_ask(now_ns(), haste) {
            return ProcessMemory::Unknown;
        }
        let outcome = attempt(shim, gpu).unwrap_or(Outcome::Absent);
        self.learn(outcome, now_ns());
        match outcome {
            Outcome::Told(memory) => memory,
            Outcome::Absent | Outcome::Silent | Outcome::Ignorant => ProcessMemory::Unknown,
        }
    }

    /// Whether it is time to ask. If so, notes that the question is asked now.
    fn may_ask(&self, now_ns: u64, haste: Haste) -> bool {
        let pause_ns = match haste {
            Haste::Now => 0,
            Haste::Soon => SOON_NS,
            Haste::Later => LATER_NS,
        };
        let next_ns = self.asked_ns.load(Ordering::Relaxed) + pause_ns;
        if now_ns < next_ns.max(self.again_ns.load(Ordering::Relaxed)) {
            return false;
        }
        self.asked_ns.store(now_ns, Ordering::Relaxed);
        true
    }

    /// Sets the time of the next question by the result of this one.
    fn learn(&self, outcome: Outcome, now_ns: u64) {
        let pause_ns = match outcome {
            Outcome::Told(ProcessMemory::Bytes(_) | ProcessMemory::NotListed) => 0,
            Outcome::Told(ProcessMemory::Unknown) | Outcome::Absent => UNTOLD_NS,
            Outcome::Ignorant => IGNORANT_NS,
            Outcome::Silent => AGAIN_NS << self.silences.load(Ordering::Relaxed).min(MOST_DOUBLINGS),
        };
        if outcome == Outcome::Silent {
            self.silences.fetch_add(1, Ordering::Relaxed);
        } else {
            self.silences.store(0, Ordering::Relaxed);
        }
        let again_ns = if pause_ns == 0 { 0 } else { now_ns + pause_ns };
        self.again_ns.store(again_ns, Ordering::Relaxed);
    }
}

/// Asks one question; `None` if no manager can be reached.
fn attempt(shim: &'static Shim, gpu: &GpuUuid) -> Option<Outcome> {
    let (region, me) = (shim.region()?, shim.identity()?);
    let address = address_in(region.directory.as_os_str().as_bytes())?;
    let connection = Connection::to(&address)?;
    let slot = shim.claimed().map(|slot| slot.index());
    let question = Question { hello: Hello::new(me, slot), gpu: *gpu };
    if !connection.send(&question.encode()) {
        return None;
    }
    let mut bytes = [0_u8; REPLY_BYTES + 1];
    let size = connection.await_message(&mut bytes, now_ns() + WAIT_MAX_NS);
    let message = size.and_then(|size| bytes.get(..size)).unwrap_or_default();
    Some(match (Reply::decode(message), Answer::decode(message)) {
        (Ok(reply), _) => Outcome::Told(reply.memory),
        (Err(_), Ok(_)) => Outcome::Ignorant,
        (Err(_), Err(_)) => Outcome::Silent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_less_pressing_a_question_the_longer_it_waits() {
        let pacing = Pacing::default();
        assert!(pacing.may_ask(10 * SECOND, Haste::Later));
        pacing.learn(Outcome::Told(ProcessMemory::Bytes(1)), 10 * SECOND);
        assert!(!pacing.may_ask(11 * SECOND - 1, Haste::Later));
        assert!(!pacing.may_ask(10 * SECOND + SOON_NS - 1, Haste::Soon));
        assert!(pacing.may_ask(10 * SECOND + 1, Haste::Now));
        assert!(pacing.may_ask(11 * SECOND + 1, Haste::Later));
    }

    #[test]
    fn a_manager_that_is_silent_is_asked_ever_more_seldom() {
        let pacing = Pacing::default();
        let may_ask = |ns| pacing.may_ask(ns, Haste::Now);
        for pause in [2, 4, 8, 16, 32, 64, 64] {
            pacing.learn(Outcome::Silent, 100 * SECOND);
            assert!(!may_ask((100 + pause) * SECOND - 1));
            assert!(may_ask((100 + pause) * SECOND));
        }
        pacing.learn(Outcome::Told(ProcessMemory::NotListed), 200 * SECOND);
        assert!(may_ask(200 * SECOND));
        pacing.learn(Outcome::Silent, 200 * SECOND);
        assert!(may_ask(202 * SECOND), "it has answered meanwhile");
        pacing.learn(Outcome::Ignorant, 200 * SECOND);
        assert!(!may_ask(259 * SECOND));
    }
}
