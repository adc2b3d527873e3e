//! User objects and graphs' references to them.

use core::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

use vcuda_driver_api::prelude::*;

use crate::base::table::{Kind, Table};
use crate::base::thread::permit;
use crate::object::host_function::HostFunction;

static OBJECTS: Table<UserObject> = Table::new(Kind::UserObject);

/// A program's object, which graphs keep alive.
#[derive(Debug)]
pub(crate) struct UserObject {
    /// Handle in the program.
    pub(crate) handle: usize,
    /// The program's destructor.
    destroy: HostFunction,
    /// Arranges for the destructor to be called on the driver's own thread.
    call: fn(HostFunction) -> CUresult,
    references: AtomicI64,
}

impl UserObject {
    /// Makes an object with `count` references. `call` runs the destructor after the last release.
    pub(crate) fn create(
        destroy: HostFunction,
        call: fn(HostFunction) -> CUresult,
        references: i64,
    ) -> usize {
        let make = |handle| UserObject { handle, destroy, call, references: AtomicI64::new(references) };
        OBJECTS.insert_with(make).0
    }

    /// Adds references.
    pub(crate) fn retain(&self, count: i64) {
        self.references.fetch_add(count, Ordering::Relaxed);
    }

    /// Releases references. After the last one the destructor is called.
    ///
    /// # Errors
    /// `INVALID_VALUE` for more than there are; those of `call`.
    pub(crate) fn release(&self, count: i64) -> CUresult {
        let take = |references: i64| references.checked_sub(count).filter(|left| *left >= 0);
        let before = self
            .references
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .map_err(|_| CUerror::INVALID_VALUE)?;
        if before == count {
            OBJECTS.remove(self.handle);
            return (self.call)(self.destroy);
        }
        Ok(())
    }
}

/// References of a graph to one object.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The object.
    pub(crate) object: Arc<UserObject>,
    /// Number of references.
    pub(crate) count: i64,
}

impl Clone for Reference {
    fn clone(&self) -> Reference {
        self.object.retain(self.count);
        Reference { object: Arc::clone(&self.object), count: self.count }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if self.count > 0 {
            // Fails only for a count below zero, which cannot happen here.
            let _ = self.object.release(self.count);
        }
    }
}

/// The object behind a handle.
///
/// # Errors
/// `INVALID_VALUE`; `NOT_PERMITTED` in a host function.
pub(crate) fn object(handle: CUuserObject) -> Result<Arc<UserObject>, CUerror> {
    permit()?;
    OBJECTS.get(handle.0).ok_or(CUerror::INVALID_VALUE)
}
