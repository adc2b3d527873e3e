//! Order of commands within a stream and between the streams of a context.
//!
//! "Stream synchronization behavior" (CUDA Driver API): the legacy default stream waits for all earlier work of the
//! context's blocking streams, and their later work waits for it; non-blocking streams are excluded. This is done by `Wait`
//! commands, submitted only if the other side has work.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use vcuda_driver_api::{CUerror, CUresult};
use vcuda_machine::{Client, Command, Stamp, Ticket};

use crate::object::process::process;
use crate::object::stream::{Role, Stream};
use crate::semantics::effects::{self, Effect};

/// Submits the waits that the default-stream rules require before the next command. That command must follow while `seen`
/// is held.
fn catch_up(stream: &Stream, client: &Client, seen: &mut u64) {
    let Some(group) = stream.group.get() else { return };
    if stream.role == Role::Legacy {
        let count = group.blocking_count.load(Ordering::Acquire);
        if count != *seen {
            *seen = count;
            // The lock is released, as submitting may wait for room.
            for other in group.blocking() {
                wait_for_last(stream, client, &other);
            }
        }
    } else if stream.is_blocking() {
        let count = group.legacy_count.load(Ordering::Acquire);
        if count != *seen {
            *seen = count;
            if let Some(legacy) = group.legacy.get().and_then(Weak::upgrade) {
                wait_for_last(stream, client, &legacy);
            }
        }
    }
}

fn wait_for_last(stream: &Stream, client: &Client, other: &Stream) {
    // Submitting a wait for a finished command costs less than checking whether it has finished.
    if let Some(ticket) = client.last_ticket(other.id) {
        client.submit_blocking(stream.id, Command::Wait { ticket });
    }
}

/// Counts a command for the other side of the default-stream rules.
fn count_up(stream: &Stream) {
    let Some(group) = stream.group.get() else { return };
    if stream.role == Role::Legacy {
        group.legacy_count.fetch_add(1, Ordering::Release);
    } else if stream.is_blocking() {
        group.blocking_count.fetch_add(1, Ordering::Release);
    }
}

/// Submits a command. Waits while the queue is full, as a launch does after 1024 unfinished ones.
#[inline]
pub(crate) fn submit(stream: &Stream, command: Command) -> Result<Ticket, CUerror> {
    let client = &process()?.client;
    let mut seen = stream.seen.lock();
    catch_up(stream, client, &mut seen);
    let ticket = client.submit_blocking(stream.id, command);
    count_up(stream);
    Ok(ticket)
}

/// As [`submit`]; `effect` takes place in this process after completion.
pub(crate) fn submit_with_effect(stream: &Stream, command: Command, effect: Effect) -> CUresult {
    let ticket = submit(stream, command)?;
    effects::add(ticket, effect);
    Ok(())
}

/// Submits a marker whose completion time stays known.
pub(crate) fn mark(stream: &Stream) -> Result<Stamp, CUerror> {
    let client = &process()?.client;
    let mut seen = stream.seen.lock();
    catch_up(stream, client, &mut seen);
    let stamp = client.mark(stream.id);
    count_up(stream);
    Ok(stamp)
}

/// Submits a marker and then a gate, or a kernel that spins for one. The watcher of the marker opens the gate.
pub(crate) fn mark_and_hold(stream: &Stream, gate: Command) -> Result<(Ticket, Ticket), CUerror> {
    let client = &process()?.client;
    let mut seen = stream.seen.lock();
    catch_up(stream, client, &mut seen);
    let marker = client.submit_blocking(stream.id, Command::Marker);
    let gate = client.submit_blocking(stream.id, gate);
    count_up(stream);
    Ok((marker, gate))
}

/// Tickets whose completion means that all work of the stream is done. For the legacy stream this includes blocking streams
/// ("synchronizes with all blocking streams").
fn frontier(stream: &Stream, client: &Client) -> Vec<Ticket> {
    let mut tickets: Vec<Ticket> = client.last_ticket(stream.id).into_iter().collect();
    if stream.role == Role::Legacy
        && let Some(group) = stream.group.get()
    {
        let last = |other: Arc<Stream>| client.last_ticket(other.id);
        tickets.extend(group.blocking().into_iter().filter_map(last));
    }
    tickets
}

/// Whether all work of the stream is done.
pub(crate) fn is_idle(stream: &Stream) -> bool {
    let Ok(process) = process() else { return true };
    frontier(stream, &process.client).into_iter().all(|ticket| process.client.is_done(ticket))
}

/// Waits for all work submitted so far, and for its effects.
pub(crate) fn wait_until_idle(stream: &Stream) -> CUresult {
    let client = &process()?.client;
    for ticket in frontier(stream, client) {
        client.wait(ticket);
    }
    effects::settle();
    Ok(())
}
