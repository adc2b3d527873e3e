//! User objects (CUDA Driver API, "Graph Management"; CUDA C++ Programming Guide, "CUDA User Objects"): counted
//! references to a program's object, some of them owned by graphs.
//!
//! A clone and an executable graph own copies of their graph's references; an executable graph's go once its
//! launches are over. docs/hardware.md, "graphs": references of embedded graphs are owned with those of the graph
//! around them.

use core::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::ffi::{export, put};
use crate::graph::graph;
use crate::hostfunc::{self, HostFunction};
use crate::table::{Kind, Table};

export! {
    cuUserObjectCreate => create;
    cuUserObjectRetain => retain;
    cuUserObjectRelease => release;
    cuGraphRetainUserObject => retain_in_graph;
    cuGraphReleaseUserObject => release_from_graph;
}

static OBJECTS: Table<UserObject> = Table::new(Kind::UserObject);

/// A program's object.
#[derive(Debug)]
struct UserObject {
    handle: usize,
    destroy: HostFunction,
    references: AtomicI64,
}

impl UserObject {
    fn retain(&self, count: i64) {
        self.references.fetch_add(count, Ordering::Relaxed);
    }

    /// The last release has the object destroyed, on the driver's own thread.
    fn release(&self, count: i64) -> CUresult {
        let take = |references: i64| references.checked_sub(count).filter(|left| *left >= 0);
        let before = self
            .references
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .map_err(|_| CUerror::INVALID_VALUE)?;
        if before == count {
            OBJECTS.remove(self.handle);
            return hostfunc::call_soon(self.destroy);
        }
        Ok(())
    }
}

/// References to one object that a graph owns.
#[derive(Debug)]
pub(crate) struct Reference {
    object: Arc<UserObject>,
    count: i64,
}

impl Clone for Reference {
    fn clone(&self) -> Reference {
        self.object.retain(self.count);
        Reference {
            object: Arc::clone(&self.object),
            count: self.count,
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if self.count > 0 {
            // An error would be a count below zero, which references that exist rule out.
            let _ = self.object.release(self.count);
        }
    }
}

fn object(handle: CUuserObject) -> Result<Arc<UserObject>, CUerror> {
    hostfunc::permit()?;
    OBJECTS.get(handle.0).ok_or(CUerror::INVALID_VALUE)
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
    hostfunc::permit()?;
    crate::process::process()?;
    let references = checked(references)?;
    let function = destroy.ok_or(CUerror::INVALID_VALUE)?;
    if place.is_null() || flags != NO_DESTRUCTOR_SYNC {
        return Err(CUerror::INVALID_VALUE);
    }
    let make = |handle| UserObject {
        handle,
        destroy: HostFunction { function, data },
        references: AtomicI64::new(references),
    };
    put(place, CUuserObject(OBJECTS.insert_with(make).0))
}

fn retain(handle: CUuserObject, count: c_uint) -> CUresult {
    object(handle)?.retain(checked(count)?);
    Ok(())
}

fn release(handle: CUuserObject, count: c_uint) -> CUresult {
    object(handle)?.release(checked(count)?)
}

/// `CU_GRAPH_USER_OBJECT_MOVE` takes the caller's references over instead of making new ones.
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
/// `INVALID_VALUE` where the graph has fewer.
fn release_from_graph(from: CUgraph, handle: CUuserObject, count: c_uint) -> CUresult {
    let from = graph(from)?;
    let mut missing = checked(count)?;
    object(handle)?;
    let released = from.with(|body| {
        let is_it = |reference: &&mut Reference| reference.object.handle == handle.0;
        let owned: i64 = body
            .references
            .iter_mut()
            .filter(is_it)
            .map(|reference| reference.count)
            .sum();
        if owned < missing {
            return Err(CUerror::INVALID_VALUE);
        }
        for reference in body.references.iter_mut().filter(is_it) {
            let taken = reference.count.min(missing);
            reference.count -= taken;
            missing -= taken;
        }
        let (gone, kept) = core::mem::take(&mut body.references)
            .into_iter()
            .partition(|r| r.count == 0);
        body.references = kept;
        Ok::<Vec<Reference>, CUerror>(gone)
    })?;
    drop(released);
    object(handle)?.release(checked(count)?)
}
