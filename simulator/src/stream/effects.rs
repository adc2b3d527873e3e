//! What commands do to memory once the machine has completed them.
//!
//! The machine keeps time only; contents are this process's. An effect happens when a thread of the process
//! next has the chance to see the completion (it waits, queries or frees), or when the host thread looks.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;

use parking_lot::Mutex;
use vcuda_machine::Ticket;

use crate::process::process;

/// Something that happens after a command's completion. It calls nothing of the API.
pub(crate) type Effect = Box<dyn FnOnce() + Send>;

/// In order of submission.
static PENDING: Mutex<VecDeque<(Ticket, Effect)>> = Mutex::new(VecDeque::new());
/// Its length, to look at without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Beyond this many, adding one looks for completed ones, so that a program that never waits does not grow.
const MANY: usize = 512;

/// Plans an effect.
pub(crate) fn add(ticket: Ticket, effect: Effect) {
    let length = {
        let mut pending = PENDING.lock();
        pending.push_back((ticket, effect));
        COUNT.store(pending.len(), Ordering::Release);
        pending.len()
    };
    if length % MANY == 0 {
        settle();
    }
}

/// Does all effects whose commands have completed.
///
/// One command is ordered after another only if it was submitted later. So the completed ones are found
/// from the newest to the oldest (what a completed one depends on is then found completed too) and done
/// in order of submission.
pub(crate) fn settle() {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let Ok(process) = process() else { return };
    let mut pending = PENDING.lock();
    let mut done: Vec<bool> =
        pending.iter().rev().map(|(ticket, _)| process.client.is_done(*ticket)).collect();
    let mut kept = VecDeque::with_capacity(pending.len());
    for (ticket, effect) in pending.drain(..) {
        if done.pop() == Some(true) {
            effect();
        } else {
            kept.push_back((ticket, effect));
        }
    }
    *pending = kept;
    COUNT.store(pending.len(), Ordering::Release);
}
