//! Events (CUDA Driver API, "Event Management").

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::{Command, Engine, Stamp};

use crate::capture;
use crate::capture::state::CapturedEvent;
use crate::current::current;
use crate::ffi::{export, put};
use crate::graph::node::Operation;
use crate::process::process;
use crate::stream::queue::Stream;
use crate::stream::{Null, resolve, settle};
use crate::table::{Kind, Table};

export! {
    cuEventCreate => create;
    cuEventRecord => record_plain::<false>;
    cuEventRecord_ptsz => record_plain::<true>;
    cuEventRecordWithFlags => record_with_flags::<false>;
    cuEventRecordWithFlags_ptsz => record_with_flags::<true>;
    cuEventQuery => query;
    cuEventSynchronize => synchronize;
    cuEventDestroy => destroy;
    cuEventDestroy_v2 => destroy;
    cuEventElapsedTime => elapsed;
    cuEventElapsedTime_v2 => elapsed;
}

static EVENTS: Table<Event> = Table::new(Kind::Event);

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    /// What the program knows it by.
    pub(crate) handle: usize,
    pub(crate) context_unique: u64,
    flags: CUevent_flags,
    last: Mutex<Recorded>,
}

/// What an event was last recorded in.
#[derive(Clone, Debug)]
enum Recorded {
    /// In nothing: "an event represents an empty set of work".
    Never,
    /// In a stream, or by a launched graph.
    Stream(Stamp),
    /// In a stream that was capturing.
    Capture(CapturedEvent),
}

impl Event {
    /// Records it in a stream that is not capturing (also as a graph's node does).
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    pub(crate) fn mark(&self, stream: &Stream) -> CUresult {
        let duration_ns = process()?.machine.config().driver.event_record_ns;
        if duration_ns > 0 && !self.is_untimed() {
            // No multiprocessor works for it: streams go on side by side.
            let engine = Engine::Host;
            stream.submit(Command::Copy { duration_ns, engine })?;
        }
        // The lock is not held meanwhile: submitting may have to wait for room.
        let stamp = stream.mark()?;
        *self.last.lock() = Recorded::Stream(stamp);
        Ok(())
    }

    /// Whether it was made without timing.
    fn is_untimed(&self) -> bool {
        self.flags.0 & CUevent_flags::DISABLE_TIMING.0 != 0
    }

    /// Makes a stream that is not capturing wait for it (also as a graph's node does).
    ///
    /// # Errors
    /// `CUDA_ERROR_CAPTURED_EVENT` where it was last recorded in a capture.
    pub(crate) fn hold_up(&self, stream: &Stream) -> CUresult {
        let last = self.last.lock().clone();
        match last {
            Recorded::Never => Ok(()),
            Recorded::Capture(captured) => capture::use_captured_event(&captured),
            Recorded::Stream(stamp) => stream
                .submit(Command::Wait {
                    ticket: stamp.ticket(),
                })
                .map(drop),
        }
    }

    /// The mark of its last record, if that was in a stream.
    ///
    /// # Errors
    /// `CUDA_ERROR_CAPTURED_EVENT`.
    pub(crate) fn stamp(&self) -> Result<Option<Stamp>, CUerror> {
        let last = self.last.lock().clone();
        match last {
            Recorded::Never => Ok(None),
            Recorded::Stream(stamp) => Ok(Some(stamp)),
            Recorded::Capture(captured) => capture::use_captured_event(&captured).map(|()| None),
        }
    }
}

/// The event behind a handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_HANDLE`, also after its context's end.
pub(crate) fn event(handle: CUevent) -> Result<Arc<Event>, CUerror> {
    crate::hostfunc::permit()?;
    process()?;
    EVENTS.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

/// A context has ended and its events with it.
pub(crate) fn forget_context(unique: u64) {
    for event in EVENTS.all() {
        if event.context_unique == unique {
            EVENTS.remove(event.handle);
        }
    }
}

/// `cuStreamWaitEvent` without the external flag.
///
/// # Errors
/// Those of capture.
pub(crate) fn wait(stream: &Stream, event: &Event) -> CUresult {
    let captured = match &*event.last.lock() {
        Recorded::Capture(captured) => Some(captured.clone()),
        _ => None,
    };
    if capture::wait(stream, captured.as_ref())? {
        return Ok(());
    }
    event.hold_up(stream)
}

fn create(place: *mut CUevent, flags: c_uint) -> CUresult {
    crate::hostfunc::permit()?;
    let context = current()?;
    let flags = CUevent_flags(flags);
    let has = |flag: CUevent_flags| flags.0 & flag.0 != 0;
    let is_unknown = flags.0 & !7 != 0;
    if place.is_null()
        || is_unknown
        || (has(CUevent_flags::INTERPROCESS) && !has(CUevent_flags::DISABLE_TIMING))
    {
        return Err(CUerror::INVALID_VALUE);
    }
    let make = |handle| Event {
        handle,
        context_unique: context.unique,
        flags,
        last: Mutex::new(Recorded::Never),
    };
    put(place, CUevent(EVENTS.insert_with(make).0))
}

fn record_plain<const PER_THREAD: bool>(event: CUevent, stream: CUstream) -> CUresult {
    record_with_flags::<PER_THREAD>(event, stream, CUevent_record_flags::DEFAULT.0)
}

/// Event and stream must be of one context. `CU_EVENT_RECORD_EXTERNAL`, a node that records the event when
/// the graph runs, only while capturing.
fn record_with_flags<const PER_THREAD: bool>(handle: CUevent, stream: CUstream, flags: c_uint) -> CUresult {
    let event = event(handle)?;
    let stream = resolve(stream, Null::of(PER_THREAD))?;
    if event.context_unique != stream.context_unique {
        return Err(CUerror::INVALID_HANDLE);
    }
    match CUevent_record_flags(flags) {
        CUevent_record_flags::DEFAULT => {}
        CUevent_record_flags::EXTERNAL => {
            return match capture::intercept(&stream)? {
                Some(recording) => recording.add(Operation::EventRecord(event)).map(drop),
                None => Err(CUerror::INVALID_VALUE),
            };
        }
        _ => return Err(CUerror::INVALID_VALUE),
    }
    match capture::record(&stream)? {
        Some(captured) => *event.last.lock() = Recorded::Capture(captured),
        None => event.mark(&stream)?,
    }
    Ok(())
}

fn query(handle: CUevent) -> CUresult {
    let event = event(handle)?;
    let stamp = event.stamp()?;
    capture::call_unsafe()?;
    let client = &process()?.client;
    if stamp.is_some_and(|stamp| client.stamp_ns(&stamp).is_none()) {
        return Err(CUerror::NOT_READY);
    }
    settle();
    Ok(())
}

/// docs/hardware.md, "calls during a capture": a potentially unsafe call, as the query is.
fn synchronize(handle: CUevent) -> CUresult {
    let event = event(handle)?;
    let stamp = event.stamp()?;
    capture::call_unsafe()?;
    if let Some(stamp) = stamp {
        process()?.client.wait(stamp.ticket());
    }
    settle();
    crate::pool::synchronized();
    Ok(())
}

/// "The call does not block on completion of the event."
fn destroy(handle: CUevent) -> CUresult {
    crate::hostfunc::permit()?;
    process()?;
    EVENTS.remove(handle.0).map(drop).ok_or(CUerror::INVALID_HANDLE)
}

/// Milliseconds of the GPU's clock between two records, others' time slices included.
///
/// # Errors
/// `INVALID_HANDLE` for an event that was made without timing or never recorded, `NOT_READY` for one that
/// is still ahead.
fn elapsed(place: *mut f32, start: CUevent, end: CUevent) -> CUresult {
    let (start, end) = (event(start)?, event(end)?);
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    if start.is_untimed() || end.is_untimed() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let start = start.stamp()?.ok_or(CUerror::INVALID_HANDLE)?;
    let end = end.stamp()?.ok_or(CUerror::INVALID_HANDLE)?;
    let client = &process()?.client;
    let start_ns = client.stamp_ns(&start).ok_or(CUerror::NOT_READY)?;
    let end_ns = client.stamp_ns(&end).ok_or(CUerror::NOT_READY)?;
    // Between the two moments is the second record; what a pair says of it may be less or more.
    let driver = &process()?.machine.config().driver;
    put(
        place,
        milliseconds(start_ns + driver.event_record_ns, end_ns + driver.event_pair_ns),
    )
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "the API gives the difference as a float of milliseconds"
)]
fn milliseconds(start_ns: u64, end_ns: u64) -> f32 {
    let distance = start_ns.abs_diff(end_ns) as f64 / 1e6;
    (if end_ns < start_ns { -distance } else { distance }) as f32
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn elapsed_time_is_signed_milliseconds() {
        assert!((milliseconds(1_000_000, 3_500_000) - 2.5).abs() < 1e-6);
        assert!((milliseconds(3_500_000, 1_000_000) + 2.5).abs() < 1e-6);
    }
}
