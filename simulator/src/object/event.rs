//! Events, with their last record.

use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::Stamp;

use crate::base::table::{Kind, Table};
use crate::base::thread::permit;
use crate::object::capture::CapturedEvent;
use crate::object::process::process;

pub(crate) static EVENTS: Table<Event> = Table::new(Kind::Event);

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) handle: usize,
    /// `Context::unique` of its context.
    pub(crate) context_unique: u64,
    flags: CUevent_flags,
    pub(crate) last: Mutex<Recorded>,
}

/// Place of an event's last record.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    /// None: "an event represents an empty set of work".
    Never,
    /// A stream, or a launched graph.
    Stream(Stamp),
    /// A capturing stream.
    Capture(CapturedEvent),
}

impl Event {
    /// Makes an event without a record. Returns its handle.
    pub(crate) fn create(context_unique: u64, flags: CUevent_flags) -> usize {
        let make = |handle| Event { handle, context_unique, flags, last: Mutex::new(Recorded::Never) };
        EVENTS.insert_with(make).0
    }

    /// Whether it was made without timing.
    pub(crate) fn is_untimed(&self) -> bool {
        self.flags.0 & CUevent_flags::DISABLE_TIMING.0 != 0
    }
}

/// The event behind a handle. Error: `CUDA_ERROR_INVALID_HANDLE`, also after its context's end.
pub(crate) fn event(handle: CUevent) -> Result<Arc<Event>, CUerror> {
    permit()?;
    process()?;
    EVENTS.get(handle.0).ok_or(CUerror::INVALID_HANDLE)
}

/// Ends the events of a context that has ended.
pub(crate) fn forget_context(unique: u64) {
    for event in EVENTS.all() {
        if event.context_unique == unique {
            EVENTS.remove(event.handle);
        }
    }
}
