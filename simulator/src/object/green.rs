//! Green contexts: parts of a device's multiprocessors with streams of their own.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use parking_lot::Mutex;
use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind, Table};
use crate::object::context::{CONTEXTS, Context};
use crate::object::device::Device;
use crate::object::process::process;
use crate::object::resource::Sms;

/// All green contexts, including those whose primary context was reset.
pub(crate) static GREENS: Table<Green> = Table::new(Kind::GreenContext);

/// Whether there ever was one; if not, lookups are skipped.
static ANY: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub(crate) struct Green {
    pub(crate) device: &'static Device,
    /// The `CUcontext` that represents it.
    pub(crate) context: Arc<Context>,
    /// Charged memory (bytes); 0 after its release.
    pub(crate) cost: Mutex<u64>,
}

/// The green context behind a handle. Errors: `CUDA_ERROR_INVALID_CONTEXT`; `CUDA_ERROR_CONTEXT_IS_DESTROYED` if its
/// primary context was reset.
pub(crate) fn green(handle: CUgreenCtx) -> Result<Arc<Green>, CUerror> {
    process()?;
    let green = GREENS.get(handle.0).ok_or(CUerror::INVALID_CONTEXT)?;
    if green.context.is_alive() { Ok(green) } else { Err(CUerror::CONTEXT_IS_DESTROYED) }
}

/// Living green contexts of a primary context, as contexts.
pub(crate) fn parts_of(primary: &Context) -> Vec<Arc<Context>> {
    if !ANY.load(Ordering::Acquire) || primary.green.is_some() {
        return Vec::new();
    }
    let all = GREENS.all().into_iter();
    all.map(|green| Arc::clone(&green.context))
        .filter(|context| context.unique == primary.unique && context.is_alive())
        .collect()
}

/// The green context that a context represents; null for an ordinary one.
pub(crate) fn of_context(handle: usize) -> CUgreenCtx {
    let context = CONTEXTS.get(handle);
    let part = context.as_ref().and_then(|context| context.green.as_ref());
    CUgreenCtx(part.map_or(0, |part| part.handle))
}

/// All green contexts of a primary context, including ended ones.
pub(crate) fn all_of(primary: &Context) -> Vec<Arc<Green>> {
    if !ANY.load(Ordering::Acquire) {
        return Vec::new();
    }
    let mut all = GREENS.all();
    all.retain(|green| green.context.unique == primary.unique);
    all
}

/// Makes a green context that costs `cost` bytes. Returns its handle.
pub(crate) fn insert(primary: &Arc<Context>, sms: Option<Sms>, cost: u64) -> usize {
    let (handle, _) = GREENS.insert_with(|handle| Green {
        device: primary.device,
        context: Context::green(primary, handle, sms),
        cost: Mutex::new(cost),
    });
    ANY.store(true, Ordering::Release);
    handle
}
