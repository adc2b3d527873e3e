//! Memory that nobody holds any more and that the GPU does not have back yet: the kernel drops a dead process's locks before
//! the driver has released its memory (`driver.release_delay_ns`).
//!
//! It is an object without a file, whose one holder is `RELEASING`.

use crate::commit::{CannotCommit, Change};
use crate::core::{Core, HoldRow, ObjectRow, RELEASING};
use crate::layout::{HOLDS, OBJECTS, as_index};
use crate::objects;
use crate::shared::{Local, Shared};

/// Does `change`; what it frees stays taken until `due`. Where the table of objects is full, it is free at once.
pub(crate) fn until<R>(core: &mut Core, due: Option<u64>, change: impl FnOnce(&mut Core) -> R) -> R {
    let before: Vec<u64> = core.gpus.iter().map(|gpu| gpu.used).collect();
    let result = change(core);
    for (gpu, before) in (0u64..).zip(before) {
        let after = core.gpus.get(as_index(gpu)).map_or(before, |row| row.used);
        if let Some(due) = due
            && before > after
        {
            keep(core, gpu, before - after, due);
        }
    }
    result
}

fn keep(core: &mut Core, gpu: u64, bytes: u64, due: u64) {
    if core.objects.len() >= OBJECTS || core.holds.len() >= HOLDS {
        return;
    }
    let id = core.next_object;
    core.next_object += 1;
    core.objects.push(ObjectRow {
        id,
        gpu,
        bytes,
        ..ObjectRow::default()
    });
    core.holds.push(HoldRow {
        object: id,
        client: RELEASING,
        count: due,
    });
    if let Some(row) = core.gpus.get_mut(as_index(gpu)) {
        row.used += bytes;
    }
}

/// What is to be released by now.
fn due(core: &Core, now: u64) -> impl Iterator<Item = u64> + '_ {
    let is_due = move |hold: &&HoldRow| hold.client == RELEASING && hold.count <= now;
    core.holds.iter().filter(is_due).map(|hold| hold.object)
}

impl Shared {
    /// When the memory of a process that ends now is the GPU's again; none: at once.
    pub(crate) fn release_due_ns(&self) -> Option<u64> {
        match self.config.driver.release_delay_ns {
            0 => None,
            delay => Some(self.now() + delay),
        }
    }

    /// Whether memory is due.
    pub(crate) fn is_any_due(&self, core: &Core) -> bool {
        due(core, self.now()).next().is_some()
    }

    /// Gives the GPU what is due.
    ///
    /// # Errors
    /// As `transact`.
    pub(crate) fn release_what_is_due(&self, local: &mut Local) -> Result<(), CannotCommit> {
        self.refresh(local)?;
        if !self.is_any_due(&local.base) {
            return Ok(());
        }
        let now = self.now();
        self.transact(local, None, |core| {
            for object in due(core, now).collect::<Vec<_>>() {
                objects::release(core, object, RELEASING, u64::MAX);
            }
            Change::Made(())
        })
    }
}
