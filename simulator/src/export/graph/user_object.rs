//! User objects (CUDA Driver API, "Graph Management"; CUDA C++ Programming Guide, "CUDA User Objects"): counted references
//! to a program's object, which graphs can own.
//!
//! A clone and an executable graph own copies of their graph's references; those of an executable graph end after its
//! launches. docs/hardware.md, "graphs": references of embedded graphs belong to the enclosing graph.

use vcuda_driver_api::prelude::*;

use crate::base::ffi::put;
use crate::base::thread::permit;
use crate::object::graph::graph;
use crate::object::graph::user_object::{Reference, UserObject, object};
use crate::object::host_function::HostFunction;
use crate::semantics::host_thread;

export! {
    cuUserObjectCreate => create;
    cuUserObjectRetain => retain;
    cuUserObjectRelease => release;
    cuGraphRetainUserObject => retain_in_graph;
    cuGraphReleaseUserObject => release_from_graph;
}

/// "Must be nonzero and not larger than INT_MAX."
fn checked(count: c_uint) -> Result<i64, CUerror> {
    if count == 0 || count > i32::MAX.unsigned_abs() {
        return Err(CUerror::INVALID_VALUE);
    }
    Ok(i64::from(count))
}

/// "Currently it is required to pass CU_USER_OBJECT_NO_DESTRUCTOR_SYNC."
fn create(
    place: *mut CUuserObject,
    data: *mut c_void,
    destroy: CUhostFn,
    references: c_uint,
    flags: c_uint,
) -> CUresult {
    const NO_DESTRUCTOR_SYNC: c_uint = 1;
    permit()?;
    crate::object::process::process()?;
    let references = checked(references)?;
    let function = destroy.ok_or(CUerror::INVALID_VALUE)?;
    if place.is_null() || flags != NO_DESTRUCTOR_SYNC {
        return Err(CUerror::INVALID_VALUE);
    }
    let destroy = HostFunction { function, data };
    let handle = UserObject::create(destroy, host_thread::call_soon, references);
    put(place, CUuserObject(handle))
}

fn retain(handle: CUuserObject, count: c_uint) -> CUresult {
    object(handle)?.retain(checked(count)?);
    Ok(())
}

fn release(handle: CUuserObject, count: c_uint) -> CUresult {
    object(handle)?.release(checked(count)?)
}

/// Adds references to a graph; `CU_GRAPH_USER_OBJECT_MOVE` transfers the caller's instead of making new ones.
fn retain_in_graph(into: CUgraph, handle: CUuserObject, count: c_uint, flags: c_uint) -> CUresult {
    const MOVE: c_uint = 1;
    let into = graph(into)?;
    let (object, count) = (object(handle)?, checked(count)?);
    match flags {
        0 => object.retain(count),
        MOVE => {}
        _ => return Err(CUerror::INVALID_VALUE),
    }
    into.with(|body| body.references.push(Reference { object, count }));
    Ok(())
}

/// # Errors
/// `INVALID_VALUE` if the graph has fewer.
fn release_from_graph(from: CUgraph, handle: CUuserObject, count: c_uint) -> CUresult {
    let from = graph(from)?;
    let mut missing = checked(count)?;
    object(handle)?;
    let released = from.with(|body| {
        let is_it = |reference: &&mut Reference| reference.object.handle == handle.0;
        let owned: i64 = body.references.iter_mut().filter(is_it).map(|reference| reference.count).sum();
        if owned < missing {
            return Err(CUerror::INVALID_VALUE);
        }
        for reference in body.references.iter_mut().filter(is_it) {
            let taken = reference.count.min(missing);
            reference.count -= taken;
            missing -= taken;
        }
        let (gone, kept) = core::mem::take(&mut body.references).into_iter().partition(|r| r.count == 0);
        body.references = kept;
        Ok::<Vec<Reference>, CUerror>(gone)
    })?;
    drop(released);
    object(handle)?.release(checked(count)?)
}
