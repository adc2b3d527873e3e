//! Effects of commands on memory once the machine has completed them.
//!
//! The machine keeps time only; contents are this process's. An effect happens when a thread of the process
//! next has the chance to see the completion (it waits, queries or frees), or when the host thread looks.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;

use parking_lot::Mutex;
use vcuda_machine::{StreamId, Ticket};

use crate::object::process::process;

/// Something that happens after a command's completion. It calls nothing of the API.
pub(crate) type Effect = Box<dyn FnOnce() + Send>;

/// In order of submission.
static PENDING: Mutex<VecDeque<(Ticket, Effect)>> = Mutex::new(VecDeque::new());
/// Does something while no effect happens in this process.
pub(crate) fn hold_still<R>(body: impl FnOnce() -> R) -> R {
    let _pending = PENDING.lock();
    body()
}

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

/// Does all effects whose commands have completed by now, in order of submission.
///
/// Dependencies of a command were submitted before it and completed no later. So the commands that had completed at one
/// moment include all that they depend on, however long the looking takes.
pub(crate) fn settle() {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let Ok(process) = process() else { return };
    let mut pending = PENDING.lock();
    let now = process.machine.now_ns();
    let tickets: Vec<Ticket> = pending.iter().map(|(ticket, _)| *ticket).collect();
    // Without a time it has completed so long ago that the machine has forgotten when.
    let is_done = |ticket: Ticket| {
        process.client.is_done(ticket) && process.client.done_ns(ticket).is_none_or(|done| done <= now)
    };
    let mut done = vec![false; tickets.len()];
    for of_stream in by_stream(&tickets) {
        // A stream is first in, first out.
        let count =
            of_stream.partition_point(|index| tickets.get(*index).is_some_and(|ticket| is_done(*ticket)));
        for index in of_stream.into_iter().take(count) {
            if let Some(done) = done.get_mut(index) {
                *done = true;
            }
        }
    }
    let mut done = done.into_iter();
    let mut kept = VecDeque::new();
    for (ticket, effect) in pending.drain(..) {
        if done.next() == Some(true) {
            effect();
        } else {
            kept.push_back((ticket, effect));
        }
    }
    *pending = kept;
    COUNT.store(pending.len(), Ordering::Release);
}

/// The positions of each stream's tickets.
fn by_stream(tickets: &[Ticket]) -> Vec<Vec<usize>> {
    let mut streams: Vec<(StreamId, Vec<usize>)> = Vec::new();
    for (index, ticket) in tickets.iter().enumerate() {
        match streams.iter_mut().find(|(stream, _)| *stream == ticket.stream()) {
            Some((_, positions)) => positions.push(index),
            None => streams.push((ticket.stream(), vec![index])),
        }
    }
    streams.into_iter().map(|(_, positions)| positions).collect()
}
