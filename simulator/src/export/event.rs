//! Events (CUDA Driver API, "Event Management").

use crate::export::prelude::*;
use crate::object::event::{EVENTS, Event, event};
use crate::object::graph::node::Operation;
use crate::semantics::capture;
use crate::semantics::effects::settle;
use crate::semantics::event::{record, stamp};

export! {
    cuEventCreate => create;
    cuEventRecord / cuEventRecord_ptsz => |null, event, stream|
        record_with_flags(null, event, stream, CUevent_record_flags::DEFAULT.0);
    cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz => record_with_flags;
    cuEventQuery => query;
    cuEventSynchronize => synchronize;
    cuEventDestroy | cuEventDestroy_v2 => destroy;
    cuEventElapsedTime | cuEventElapsedTime_v2 => elapsed;
}

fn create(place: *mut CUevent, flags: c_uint) -> CUresult {
    crate::base::thread::permit()?;
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
    put(place, CUevent(Event::create(context.unique, flags)))
}

/// Records an event; event and stream must belong to one context. `CU_EVENT_RECORD_EXTERNAL` makes a node that records the
/// event when the graph runs, and is only valid while capturing.
fn record_with_flags(null: Null, handle: CUevent, stream: CUstream, flags: c_uint) -> CUresult {
    let event = event(handle)?;
    let stream = resolve(stream, null)?;
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
    record(&event, &stream)
}

fn query(handle: CUevent) -> CUresult {
    let event = event(handle)?;
    let stamp = stamp(&event)?;
    capture::reject_unsafe_call()?;
    let client = &process()?.client;
    if stamp.is_some_and(|stamp| client.stamp_ns(&stamp).is_none()) {
        return Err(CUerror::NOT_READY);
    }
    settle();
    Ok(())
}

/// Waits for an event, a potentially unsafe call like the query (docs/hardware.md, "calls during a capture").
fn synchronize(handle: CUevent) -> CUresult {
    let event = event(handle)?;
    let stamp = stamp(&event)?;
    capture::reject_unsafe_call()?;
    if let Some(stamp) = stamp {
        process()?.client.wait(stamp.ticket());
    }
    settle();
    crate::semantics::pool::synchronized();
    Ok(())
}

/// "The call does not block on completion of the event."
fn destroy(handle: CUevent) -> CUresult {
    crate::base::thread::permit()?;
    process()?;
    EVENTS.remove(handle.0).map(drop).ok_or(CUerror::INVALID_HANDLE)
}

/// Time between two records on the GPU's clock (ms), including others' time slices. Errors: `INVALID_HANDLE` for an
/// event without timing or never recorded, `NOT_READY` for a pending one.
fn elapsed(place: *mut f32, start: CUevent, end: CUevent) -> CUresult {
    let (start, end) = (event(start)?, event(end)?);
    if place.is_null() {
        return Err(CUerror::INVALID_VALUE);
    }
    if start.is_untimed() || end.is_untimed() {
        return Err(CUerror::INVALID_HANDLE);
    }
    let start = stamp(&start)?.ok_or(CUerror::INVALID_HANDLE)?;
    let end = stamp(&end)?.ok_or(CUerror::INVALID_HANDLE)?;
    let client = &process()?.client;
    let start_ns = client.stamp_ns(&start).ok_or(CUerror::NOT_READY)?;
    let end_ns = client.stamp_ns(&end).ok_or(CUerror::NOT_READY)?;
    // The interval includes the second record; the reported time of a pair may be shorter or longer.
    let driver = &process()?.machine.config().driver;
    put(place, milliseconds(start_ns + driver.event_record_ns, end_ns + driver.event_pair_ns))
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
