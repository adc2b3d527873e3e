//! Directories of grants: kept as the ledger says, removed, and checked.

use std::sync::Arc;
use std::time::SystemTime;

use vcuda_region::clock;

use super::super::{Change, ChangeKind, GrantError};
use super::GrantWriter;
use crate::events::Severity;
use crate::grant::{Grant, GrantId};
use crate::grant_table::GrantTable;
use crate::observe::Tenant;
use crate::tenant_directories::{Ensured, TenantDirectories};

/// Time after which directories are checked again although their folder has not changed (ns).
const COMPLETE_NS: u64 = 10_000_000_000;

impl GrantWriter {
    /// Brings the directory to what the grant says. `kind` is the change of the grant; `None` for a periodic check.
    pub(super) fn ensure(&mut self, grant: &Arc<Grant>, kind: Option<ChangeKind>) -> Result<(), GrantError> {
        // A grant that was released in the same batch has no directory any more.
        if self.grant_table.by_id(grant.id.as_str()).is_none() {
            return Ok(());
        }
        // Of several changes in a batch the last one holds.
        let last = self.grant_table.by_id(grant.id.as_str()).map_or_else(|| Arc::clone(grant), Arc::clone);
        let mut ensured = self.directories.ensure(&last);
        if ensured.is_err() && self.cut_grown() {
            ensured = self.directories.ensure(&last);
        }
        match ensured {
            Ok(ensured) => {
                self.pending.remove(&grant.number);
                let is_expected = kind.is_some() || ensured == Ensured::Kept;
                if !is_expected {
                    self.report_repaired(&last, &ensured);
                }
                Ok(())
            }
            Err(error) => {
                let text = format!("{}: {error}", grant.id);
                self.events.say(
                    Severity::Error,
                    "VcudaDirectoryFailed",
                    text.clone(),
                    Some(grant.id.as_str()),
                );
                Err(GrantError::Unavailable(text))
            }
        }
    }

    /// Removes grants whose directory could not be made, as their callers got an error.
    pub(super) fn undo(&mut self, undone: &[Arc<Grant>], changes: &mut Vec<Change>) {
        if undone.is_empty() {
            return;
        }
        let mut next = GrantTable::clone(&self.grant_table);
        for grant in undone {
            next.remove(&grant.id);
        }
        next.revision += 1;
        let next = Arc::new(next);
        match self.ledger.write(&next) {
            Ok(()) => {
                self.grant_table = next;
                for grant in undone {
                    self.remove_directory(&grant.id);
                }
            }
            // The grants then stay, and a repeated request makes their directories.
            Err(error) => {
                self.ledger_failed(&error.to_string());
                changes.extend(
                    undone.iter().map(|grant| Change { kind: ChangeKind::Created, grant: Arc::clone(grant) }),
                );
            }
        }
    }

    /// Removes the directory of an ended grant: renames it, then deletes it in the background.
    pub(super) fn remove_directory(&mut self, id: &GrantId) {
        // What a tenant used that began and ended between two looks is counted, too.
        let inode = self.directories.inode(id);
        let is_seen = |tenant: &Tenant| Some(tenant.inode) == inode;
        if inode.is_some() && !self.snapshots.last().find(id.as_str()).is_some_and(is_seen) {
            self.snapshots.begun_after(clock::now_ns());
        }
        match self.directories.remove(id) {
            Ok(Some(aside)) => {
                // The next start deletes what is left.
                drop(self.runtime.spawn_blocking(move || TenantDirectories::discard(&aside)));
            }
            Ok(None) => {}
            Err(error) => {
                let text = format!("{id} is released, and its directory is still there: {error}");
                self.events.say(Severity::Warning, "VcudaDirectoryFailed", text, Some(id.as_str()));
                self.leftovers.insert(id.clone());
            }
        }
    }

    /// Takes back room that tenants took in their directories. Returns whether there was any.
    fn cut_grown(&self) -> bool {
        let all = self.directories.cut_grown();
        for (id, grown) in &all {
            let what = match grown.attributes {
                None => {
                    "more extended attributes than can be listed, which stay until it is removed".to_owned()
                }
                Some(count) => {
                    format!("{} bytes and {count} extended attributes, which were taken back", grown.bytes)
                }
            };
            let text = format!("{id} has added to its file usage {what}; end its processes if it goes on");
            self.events.say(Severity::Warning, "VcudaUsageGrown", text, Some(id));
        }
        !all.is_empty()
    }

    /// Periodic check: the ledger can be written, and each grant has its directory.
    pub(super) fn check(&mut self) {
        self.cut_grown();
        if self.shared.problem.borrow().is_some() {
            match self.ledger.write(&self.grant_table) {
                Ok(()) => self.ledger_works(),
                Err(error) => self.ledger_failed(&error.to_string()),
            }
        }
        let (now_ns, changed) = (clock::now_ns(), self.directories.changed());
        let is_complete = |(then, at_ns): (SystemTime, u64)| {
            Some(then) == changed && now_ns < at_ns.saturating_add(COMPLETE_NS)
        };
        if !self.pending.is_empty() || !self.last_complete.is_some_and(is_complete) {
            let is_complete = self.restore_missing();
            self.last_complete = changed.filter(|_| is_complete).map(|changed| (changed, now_ns));
        }
        for id in std::mem::take(&mut self.leftovers) {
            if self.directories.is_used(&id) {
                self.leftovers.insert(id);
            } else {
                self.remove_directory(&id);
            }
        }
    }

    /// Makes missing directories again. Returns whether all were there.
    fn restore_missing(&mut self) -> bool {
        let grant_table = Arc::clone(&self.grant_table);
        let mut were_complete = true;
        for grant in grant_table.grants() {
            let is_right =
                !self.pending.contains_key(&grant.number) && self.directories.is_present(&grant.id);
            if !is_right {
                were_complete = false;
                // The failure is reported, and tried again at the next check.
                let _ = self.ensure(grant, None);
            }
        }
        were_complete
    }

    /// Warns of a grant with less memory than a context. The grant must be visible before, as a listener reads it.
    pub(super) fn warn_if_small(&self, grant: &Grant) {
        let rules = *self.shared.rules.lock();
        if let Some(text) = rules.too_small(&grant.amounts) {
            let id = Some(grant.id.as_str());
            self.events.say(Severity::Warning, "VcudaSmallMemory", text, id);
        }
    }

    fn report_repaired(&self, grant: &Grant, ensured: &Ensured) {
        let what = match ensured {
            Ensured::Kept => return,
            Ensured::Made => {
                "its directory was gone and was made again; processes that run keep the files they have open"
            }
            Ensured::Repaired(what) => &format!("its {what} were not as granted and are again"),
        };
        let text = format!("{}: {what}", grant.id);
        self.events.say(Severity::Warning, "VcudaDirectoryRestored", text, Some(grant.id.as_str()));
    }
}
