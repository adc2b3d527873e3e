//! Imported memory of other interfaces.

use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind as HandleKind, Table};
use crate::object::context::Context;
use crate::object::current::current;
use crate::object::device::Device;
use crate::object::memory::{self, Kind};
use crate::object::process::process;
use crate::object::sharing::{self, Shared, Sort};

static EXTERNALS: Table<External> = Table::new(HandleKind::ExternalMemory);

#[derive(Debug)]
pub(crate) struct External {
    shared: Arc<Shared>,
    /// Size as described by the program (bytes).
    bytes: u64,
    /// `Context::unique` of the context that imported it.
    context: u64,
}

/// Imports memory behind a descriptor, which is not consumed. It ends with the context. Errors: `CUDA_ERROR_UNKNOWN`
/// for a descriptor that is no memory or none at all (seen on an H200, 580.159.04), `CUDA_ERROR_INVALID_VALUE` for
/// memory of fewer bytes; those of [`Shared::hold`] and [`Shared::foreign`].
pub(crate) fn import(descriptor: c_int, bytes: u64, context: &Context) -> Result<usize, CUerror> {
    let shared = hold(descriptor, bytes, context.device)?;
    Ok(EXTERNALS.insert(External { shared: Arc::new(shared), bytes, context: context.unique }))
}

/// Ends imported memory; its mappings keep it. Error: `CUDA_ERROR_INVALID_VALUE` for null (seen on an H200,
/// 580.159.04), else `CUDA_ERROR_INVALID_HANDLE`.
pub(crate) fn destroy(handle: CUexternalMemory) -> CUresult {
    process()?;
    EXTERNALS.remove(handle.0).map(drop).ok_or(unknown(handle))
}

/// Holds the memory behind a descriptor, which is not consumed.
fn hold(descriptor: c_int, bytes: u64, device: &'static Device) -> Result<Shared, CUerror> {
    let Ok(object) = sharing::object_of(descriptor) else {
        let file = sharing::duplicate(descriptor).map_err(|_| CUerror::UNKNOWN)?;
        let length = file.metadata().map_err(|_| CUerror::UNKNOWN)?.len();
        return if length < bytes { Err(CUerror::UNKNOWN) } else { Shared::foreign(device, bytes, file) };
    };
    let shared = Shared::hold(object, None, Sort::Physical).map_err(sharing::as_invalid_value)?;
    if shared.bytes < bytes { Err(CUerror::INVALID_VALUE) } else { Ok(shared) }
}

/// The imported memory behind a handle.
pub(crate) fn external(handle: CUexternalMemory) -> Result<Arc<External>, CUerror> {
    process()?;
    EXTERNALS.get(handle.0).ok_or(unknown(handle))
}

/// The error for a handle that stands for nothing.
fn unknown(handle: CUexternalMemory) -> CUerror {
    if handle.0 == 0 { CUerror::INVALID_VALUE } else { CUerror::INVALID_HANDLE }
}

/// Maps a part of imported memory in the current context. Error: `CUDA_ERROR_INVALID_VALUE` for a part outside; those
/// of [`current`] and [`sharing::show`].
pub(crate) fn show(external: &External, offset: u64, bytes: u64) -> Result<u64, CUerror> {
    let context = current()?;
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= external.bytes);
    if bytes == 0 || !is_inside {
        return Err(CUerror::INVALID_VALUE);
    }
    let base = sharing::show(&external.shared, offset, bytes)?;
    memory::insert(base, bytes, Kind::External, external.shared.device, Some(&context));
    Ok(base)
}

/// Ends a buffer. Error: `CUDA_ERROR_INVALID_VALUE` if there is none at the address.
pub(crate) fn free(address: u64) -> CUresult {
    memory::remove(address, |kind| kind == Kind::External).ok_or(CUerror::INVALID_VALUE)?;
    sharing::end(address);
    Ok(())
}

/// Ends the imports of a context that has ended.
pub(crate) fn forget_context(unique: u64) {
    for handle in EXTERNALS.handles(|external| external.context == unique) {
        EXTERNALS.remove(handle);
    }
}
