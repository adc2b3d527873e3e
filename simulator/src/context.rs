//! Contexts (CUDA Driver API, "Context Management"): the object and what it owns.
//!
//! `context_api.rs` has the exported functions, `primary.rs` the device's own context.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;
use vcuda_machine::ContextId;

use crate::device::Device;
use crate::limits::Limits;
use crate::process::process;
use crate::resource::Sms;
use crate::stream::ContextStreams;
use crate::table::{Kind, Table};

/// All contexts of the process. A primary context's entry stays after its reset.
pub(crate) static CONTEXTS: Table<Context> = Table::new(Kind::Context);

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// What the program knows it by.
    pub(crate) handle: usize,
    /// Where it is.
    pub(crate) device: &'static Device,
    /// What the machine knows it by.
    pub(crate) id: ContextId,
    /// Unique over the life of the program.
    pub(crate) unique: u64,
    /// Whether it is its device's primary one.
    pub(crate) is_primary: bool,
    /// `CU_CTX_*`.
    pub(crate) flags: AtomicU32,
    /// What `cuCtxGetApiVersion` says.
    pub(crate) api_version: u32,
    /// `cuCtxAttach`'s count.
    pub(crate) attached: AtomicI32,
    /// `cuCtxSetLimit`.
    pub(crate) limits: Limits,
    /// `CUfunc_cache`, `CUsharedconfig`.
    pub(crate) cache_config: AtomicU32,
    /// See `cache_config`.
    pub(crate) shared_config: AtomicU32,
    /// Contexts whose memory kernels here may use.
    pub(crate) peers: Mutex<Vec<usize>>,
    /// Its streams, the default ones among them.
    pub(crate) streams: ContextStreams,
    /// Set where it stands for a green context: then `device`, `id` and `unique` are the primary context's.
    pub(crate) green: Option<crate::green::Part>,
    alive: AtomicBool,
}

static UNIQUE: AtomicU64 = AtomicU64::new(1);

impl Context {
    /// Makes a context on a device; the machine charges its overhead. A primary context that lives `again`
    /// keeps its handle.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` where the GPU has no room for the overhead.
    pub(crate) fn create(
        device: &'static Device,
        flags: u32,
        api_version: u32,
        is_primary: bool,
        again: Option<usize>,
    ) -> Result<Arc<Context>, CUerror> {
        let process = process()?;
        let id = process
            .client
            .context_create(device.gpu)
            .map_err(|_| CUerror::OUT_OF_MEMORY)?;
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
            attached: AtomicI32::new(1),
            limits: Limits::new(device),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(0),
            peers: Mutex::new(Vec::new()),
            streams: ContextStreams::new(),
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

    /// Makes the form of a green context that calls for contexts take.
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
            attached: AtomicI32::new(1),
            limits: Limits::new(primary.device),
            cache_config: load(&primary.cache_config),
            shared_config: load(&primary.shared_config),
            peers: Mutex::new(primary.peers.lock().clone()),
            streams: ContextStreams::new(),
            green: Some(crate::green::Part {
                handle: green,
                unique: UNIQUE.fetch_add(1, Ordering::Relaxed),
                sms,
                primary: Arc::clone(primary),
                holder: crate::current::Holder::default(),
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

    /// Ends the form of a green context; false if it has ended already.
    pub(crate) fn end_green(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }

    /// Ends it and all that is in it: memory, modules, streams, events ("destroys and cleans up all
    /// resources associated with the context"). Waits for its work first (`cuCtxDestroy`: "it is the
    /// responsibility of the calling function to ensure that no API call issues using ctx while
    /// cuCtxDestroy() is executing").
    pub(crate) fn destroy(&self) -> CUresult {
        if !self.alive.swap(false, Ordering::AcqRel) {
            return Err(CUerror::INVALID_CONTEXT);
        }
        let process = process()?;
        crate::green::forget_primary(self);
        crate::stream::destroy_all(self);
        crate::module::forget_context(self);
        crate::array::forget_context(self);
        crate::memory::free_context(self);
        self.limits.end();
        process.client.context_destroy(self.id);
        if !self.is_primary {
            CONTEXTS.remove(self.handle);
        }
        Ok(())
    }
}

/// The context behind a handle, alive.
///
/// # Errors
/// `CUDA_ERROR_INVALID_CONTEXT` for a null, wild or ended handle.
pub(crate) fn context(handle: usize) -> Result<Arc<Context>, CUerror> {
    process()?;
    CONTEXTS
        .get(handle)
        .filter(|context| context.is_alive())
        .ok_or(CUerror::INVALID_CONTEXT)
}

/// Checks `CU_CTX_*` flags: known bits, and one way of waiting at most.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub(crate) fn check_flags(flags: u32) -> Result<u32, CUerror> {
    let scheduling = flags & CUctx_flags::SCHED_MASK.0;
    if flags & !CUctx_flags::FLAGS_MASK.0 != 0 || ![0, 1, 2, 4].contains(&scheduling) {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(flags)
}
