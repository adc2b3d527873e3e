//! Events in streams: records, and waits for them.

use vcuda_driver_api::prelude::*;
use vcuda_machine::{Command, Engine, Stamp};

use crate::object::event::{Event, Recorded};
use crate::object::process::process;
use crate::object::stream::Stream;
use crate::semantics::{capture, ordering};

/// Records an event in a stream that is not capturing, also for a graph node.
pub(crate) fn mark(event: &Event, stream: &Stream) -> CUresult {
    let duration_ns = process()?.machine.config().driver.event_record_ns;
    if duration_ns > 0 && !event.is_untimed() {
        // A wait that needs no multiprocessor, so that other streams continue.
        let engine = Engine::Host;
        ordering::submit(stream, Command::Copy { duration_ns, engine })?;
    }
    // The event is not locked meanwhile, as submitting may wait for room.
    let stamp = ordering::mark(stream)?;
    *event.last.lock() = Recorded::Stream(stamp);
    Ok(())
}

/// Makes a stream that is not capturing wait for an event, also for a graph node. Error: `CUDA_ERROR_CAPTURED_EVENT` if
/// it was last recorded in a capture.
pub(crate) fn hold_up(event: &Event, stream: &Stream) -> CUresult {
    let last = event.last.lock().clone();
    match last {
        Recorded::Never => Ok(()),
        Recorded::Capture(captured) => capture::use_captured_event(&captured),
        Recorded::Stream(stamp) => {
            let ticket = stamp.ticket();
            ordering::submit(stream, Command::Wait { ticket }).map(drop)
        }
    }
}

/// The stamp of an event's last record, if that was in a stream.
pub(crate) fn stamp(event: &Event) -> Result<Option<Stamp>, CUerror> {
    let last = event.last.lock().clone();
    match last {
        Recorded::Never => Ok(None),
        Recorded::Stream(stamp) => Ok(Some(stamp)),
        Recorded::Capture(captured) => capture::use_captured_event(&captured).map(|()| None),
    }
}

/// `cuStreamWaitEvent` without the external flag.
pub(crate) fn wait(stream: &Stream, event: &Event) -> CUresult {
    let captured = match &*event.last.lock() {
        Recorded::Capture(captured) => Some(captured.clone()),
        _ => None,
    };
    if capture::wait(stream, captured.as_ref())? {
        return Ok(());
    }
    hold_up(event, stream)
}

/// Records an event in a stream, or in the stream's capture. Error: those of capture, and of [`mark`].
pub(crate) fn record(event: &Event, stream: &Stream) -> CUresult {
    match capture::record(stream)? {
        Some(captured) => *event.last.lock() = Recorded::Capture(captured),
        None => mark(event, stream)?,
    }
    Ok(())
}
