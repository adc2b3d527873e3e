//! Memory whose last holder is gone but that is not free yet. The kernel drops a dead process's locks before the driver has
//! released its memory (`driver.release_delay_ns`). The driver releases it only when its descriptors are closed, including
//! those in forked children (`driver.child_keeps_memory`).
//!
//! It is an object without a file, with the only holder `RELEASING` or `INHERITED`.

use crate::commit::{CannotCommit, Change};
use crate::core::{Core, DESCRIPTORS, HoldRow, INHERITED, ObjectRow, RELEASING};
use crate::layout::{HOLDS, OBJECTS, as_index};
use crate::objects;
use crate::shared::{Local, Shared};

/// Holder of memory that no process has any more.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Retainer {
    /// The driver, until this time (ns).
    Driver(u64),
    /// The driver's descriptors of this dead client, in its children.
    Children(u64),
}

impl Retainer {
    fn hold_of(self, object: u64) -> HoldRow {
        let (client, count) = match self {
            Retainer::Driver(due) => (RELEASING, due),
            Retainer::Children(dead) => (INHERITED, dead),
        };
        HoldRow { object, client, count }
    }
}

/// Applies `change`; memory that it frees stays taken until `retainer` releases it. If the table of objects is full, it is
/// freed at once.
pub(crate) fn until<R>(
    core: &mut Core,
    retainer: Option<Retainer>,
    change: impl FnOnce(&mut Core) -> R,
) -> R {
    let before: Vec<u64> = core.gpus.iter().map(|gpu| gpu.used).collect();
    let result = change(core);
    for (gpu, before) in (0u64..).zip(before) {
        let after = core.gpus.get(as_index(gpu)).map_or(before, |row| row.used);
        if let Some(retainer) = retainer
            && before > after
        {
            keep(core, gpu, before - after, retainer);
        }
    }
    result
}

fn keep(core: &mut Core, gpu: u64, bytes: u64, retainer: Retainer) {
    if core.objects.len() >= OBJECTS || core.holds.len() >= HOLDS {
        return;
    }
    let id = core.next_object;
    core.next_object += 1;
    core.objects.push(ObjectRow { id, gpu, bytes, ..ObjectRow::default() });
    core.holds.push(retainer.hold_of(id));
    if let Some(row) = core.gpus.get_mut(as_index(gpu)) {
        row.used += bytes;
    }
}

impl Shared {
    /// Holder of memory that is released now.
    pub(crate) fn retainer(&self) -> Option<Retainer> {
        match self.config.driver.release_delay_ns {
            0 => None,
            delay => Some(Retainer::Driver(self.now() + delay)),
        }
    }

    /// Holder of the memory of a process that ends now.
    pub(crate) fn retainer_of_client(&self, client: u64) -> Option<Retainer> {
        if self.config.driver.child_keeps_memory && self.objects.is_driver_open(client) {
            Some(Retainer::Children(client))
        } else {
            self.retainer()
        }
    }

    /// Memory that is due for release.
    fn due<'a>(&'a self, core: &'a Core) -> impl Iterator<Item = HoldRow> + 'a {
        let now = self.now();
        let is_due = move |hold: &HoldRow| match hold.client {
            RELEASING => hold.count <= now,
            INHERITED => !self.objects.is_driver_open(hold.count),
            _ => false,
        };
        core.holds.iter().copied().filter(is_due)
    }

    fn is_any_due(&self, core: &Core) -> bool {
        self.due(core).next().is_some()
    }

    /// Whether a check would free memory: a process has died, memory is due, or the last descriptor of an exported object
    /// was closed.
    pub(crate) fn is_any_to_release(&self, core: &Core) -> bool {
        let is_closed =
            |hold: &HoldRow| hold.client == DESCRIPTORS && !self.objects.has_descriptors(hold.object);
        self.is_any_dead(core) || self.is_any_due(core) || core.holds.iter().any(is_closed)
    }

    /// Frees the memory that is due.
    pub(crate) fn release_due(&self, local: &mut Local) -> Result<(), CannotCommit> {
        self.refresh(local)?;
        if !self.is_any_due(&local.base) {
            return Ok(());
        }
        self.transact(local, None, |core| {
            for hold in self.due(core).collect::<Vec<_>>() {
                // The last descriptor is closed, and the driver's delay begins.
                let retainer = (hold.client == INHERITED).then(|| self.retainer()).flatten();
                until(core, retainer, |core| objects::release(core, hold.object, hold.client, u64::MAX));
            }
            Change::Made(())
        })
    }
}
