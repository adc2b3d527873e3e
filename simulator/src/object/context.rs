//! Contexts (CUDA Driver API, "Context Management"): the object and what it owns.
//!
//! `semantics/context.rs` ends contexts, and has primary contexts.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::ContextId;

use crate::base::table::{Kind, Table};
use crate::object::device::Device;
use crate::object::limits::Limits;
use crate::object::process::process;
use crate::object::resource::Sms;
use crate::object::stream::ContextStreams;

/// All contexts of the process. A primary context's entry stays after its reset.
pub(crate) static CONTEXTS: Table<Context> = Table::new(Kind::Context);

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) device: &'static Device,
    /// Id on the machine.
    pub(crate) id: ContextId,
    /// Id, never reused in this process.
    pub(crate) unique: u64,
    /// Whether it is its device's primary context.
    pub(crate) is_primary: bool,
    /// Flags `CU_CTX_*`.
    pub(crate) flags: AtomicU32,
    /// Answer of `cuCtxGetApiVersion`.
    pub(crate) api_version: u32,
    /// Limits of `cuCtxSetLimit`.
    pub(crate) limits: Limits,
    /// Contexts whose memory its kernels may access.
    pub(crate) peers: Mutex<Vec<usize>>,
    /// Its streams, including default ones.
    pub(crate) streams: ContextStreams,
    /// Green context that it represents, if any; `device`, `id` and `unique` are then the primary context's.
    pub(crate) green: Option<Part>,
    alive: AtomicBool,
}

/// Facts about the green context that a context represents.
#[derive(Debug)]
pub(crate) struct Part {
    /// Handle of the green context.
    pub(crate) handle: usize,
    /// Id for `cuGreenCtxGetId`.
    pub(crate) unique: u64,
    /// Its multiprocessors; `None`: all.
    pub(crate) sms: Option<Sms>,
    pub(crate) primary: Arc<Context>,
    /// The thread that uses it.
    pub(crate) holder: Holder,
}

/// The thread whose stack has a green context: "a green context can be current to only one thread at a time"
/// (`cuGreenCtxCreate`). It counts as current anywhere on the stack, and a second thread is refused (docs/hardware.md,
/// "green contexts"). Without `driver.green_current_once` there is no such limit.
#[derive(Debug, Default)]
pub(crate) struct Holder(pub(crate) AtomicU64);

impl Holder {
    /// Claims the context for a thread; false if another thread has it.
    pub(crate) fn claim(&self, thread: u64) -> bool {
        let taken = self.0.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(thread)
    }
}

static UNIQUE: AtomicU64 = AtomicU64::new(1);

impl Context {
    /// Makes a context on a device, charged with its overhead. A primary context made `again` keeps its handle. Error:
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the GPU has no memory for the overhead.
    pub(crate) fn create(
        device: &'static Device,
        flags: u32,
        api_version: u32,
        is_primary: bool,
        again: Option<usize>,
    ) -> Result<Arc<Context>, CUerror> {
        let process = process()?;
        let id = process.client.context_create(device.gpu).map_err(|_| CUerror::OUT_OF_MEMORY)?;
        let create_ns = process.machine.config().driver.context_create_ns;
        std::thread::sleep(Duration::from_nanos(create_ns));
        let make = |handle| Context {
            handle,
            device,
            id,
            unique: UNIQUE.fetch_add(1, Ordering::Relaxed),
            is_primary,
            flags: AtomicU32::new(flags),
            api_version,
            limits: Limits::new(device),
            peers: Mutex::new(Vec::new()),
            streams: ContextStreams::default(),
            green: None,
            alive: AtomicBool::new(true),
        };
        Ok(match again {
            None => CONTEXTS.insert_with(make).1,
            Some(handle) => {
                let context = Arc::new(make(handle));
                CONTEXTS.replace(handle, Arc::clone(&context));
                context
            }
        })
    }

    /// Makes the context that represents a green context.
    pub(crate) fn green(primary: &Arc<Context>, green: usize, sms: Option<Sms>) -> Arc<Context> {
        let load = |word: &AtomicU32| AtomicU32::new(word.load(Ordering::Relaxed));
        let make = |handle| Context {
            handle,
            device: primary.device,
            id: primary.id,
            unique: primary.unique,
            is_primary: false,
            flags: load(&primary.flags),
            api_version: primary.api_version,
            limits: Limits::new(primary.device),
            peers: Mutex::new(primary.peers.lock().clone()),
            streams: ContextStreams::default(),
            green: Some(Part {
                handle: green,
                unique: UNIQUE.fetch_add(1, Ordering::Relaxed),
                sms,
                primary: Arc::clone(primary),
                holder: Holder::default(),
            }),
            alive: AtomicBool::new(true),
        };
        CONTEXTS.insert_with(make).1
    }

    /// Whether it may still be used.
    #[inline]
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// `cuCtxGetId`.
    pub(crate) fn public_id(&self) -> u64 {
        self.green.as_ref().map_or(self.unique, |part| part.unique)
    }

    /// Marks it as ended; false if it was already. `semantics::context` ends its content.
    pub(crate) fn end(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }
}

/// The context behind a handle, alive. Error: `CUDA_ERROR_INVALID_CONTEXT` for a null, wild or ended handle.
pub(crate) fn context(handle: usize) -> Result<Arc<Context>, CUerror> {
    process()?;
    CONTEXTS.get(handle).filter(|context| context.is_alive()).ok_or(CUerror::INVALID_CONTEXT)
}

/// Limits of a context; a green one has those of its primary context.
pub(crate) fn limits_of(context: &Context) -> &Limits {
    context.green.as_ref().map_or(&context.limits, |part| &part.primary.limits)
}

/// Checks `CU_CTX_*` flags: known bits, and at most one way of waiting.
pub(crate) fn check_flags(flags: u32) -> Result<u32, CUerror> {
    let scheduling = flags & CUctx_flags::SCHED_MASK.0;
    if flags & !CUctx_flags::FLAGS_MASK.0 != 0 || ![0, 1, 2, 4].contains(&scheduling) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(flags)
}
