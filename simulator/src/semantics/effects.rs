//! Effects of commands on memory once the machine has completed them.
//!
//! The machine only keeps time; memory contents belong to this process. An effect takes place when a thread of the process
//! next notices the completion (it waits, queries or frees), or when the host thread polls.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::VecDeque;

use parking_lot::Mutex;
use vcuda_machine::{StreamId, Ticket};

use crate::object::process::process;

/// An action after a command's completion. It calls no function of the API.
pub(crate) type Effect = Box<dyn FnOnce() + Send>;

/// Pending effects in order of submission.
static PENDING: Mutex<VecDeque<(Ticket, Effect)>> = Mutex::new(VecDeque::new());
/// Calls `body` while no effect takes place in this process.
pub(crate) fn hold_still<R>(body: impl FnOnce() -> R) -> R {
    let _pending = PENDING.lock();
    body()
}

/// Number of pending effects, readable without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Number of pending effects from which adding one applies completed ones, so that the list stays bounded.
const MANY: usize = 512;

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

/// Applies all effects whose commands have completed, in order of submission.
///
/// Dependencies of a command were submitted earlier and completed no later. The commands that are complete at one moment
/// thus include all their dependencies, however long this takes.
pub(crate) fn settle() {
    if COUNT.load(Ordering::Acquire) == 0 {
        return;
    }
    let Ok(process) = process() else { return };
    let mut pending = PENDING.lock();
    let now = process.machine.now_ns();
    let tickets: Vec<Ticket> = pending.iter().map(|(ticket, _)| *ticket).collect();
    // Without a time it has completed so long ago that the machine no longer knows the time.
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

/// Positions of the tickets by stream.
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
