//! The directories of grants: brought to what the ledger says, taken away, and looked after.

use std::sync::Arc;
use std::time::SystemTime;

use vcuda_region::clock;

use super::super::{Change, ChangeKind, GrantError};
use super::GrantWriter;
use crate::events::Severity;
use crate::grant::{Grant, GrantId};
use crate::grant_table::GrantTable;
use crate::tenant_directories::{Ensured, TenantDirectories};

/// Directories that were found whole, in a folder that has not changed, are looked at again after so long (ns).
const WHOLE_NS: u64 = 10_000_000_000;

impl GrantWriter {
    /// Brings the directory to what the grant says. `kind` says what has become of the grant; nothing for one that is only
    /// looked after.
    pub(super) fn ensure(&mut self, grant: &Arc<Grant>, kind: Option<ChangeKind>) -> Result<(), GrantError> {
        // One that was released in the same breath has no directory any more.
        if self.grant_table.by_id(grant.id.as_str()).is_none() {
            return Ok(());
        }
        // Of several changes in one write the last holds.
        let last = self
            .grant_table
            .by_id(grant.id.as_str())
            .map_or_else(|| Arc::clone(grant), Arc::clone);
        match self.directories.ensure(&last) {
            Ok(ensured) => {
                self.pending.remove(&grant.number);
                let is_expected = kind.is_some() || ensured == Ensured::Kept;
                if !is_expected {
                    self.tell_repaired(&last, &ensured);
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

    /// Takes back grants that have no directory: their callers were told so.
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
                    self.take_away(&grant.id);
                }
            }
            // Then they stay, and repeating the request makes their directories.
            Err(error) => {
                self.ledger_failed(&error.to_string());
                changes.extend(undone.iter().map(|grant| Change {
                    kind: ChangeKind::Created,
                    grant: Arc::clone(grant),
                }));
            }
        }
    }

    /// Takes the directory of a grant that is no more out of sight, and deletes it.
    pub(super) fn take_away(&mut self, id: &GrantId) {
        match self.directories.remove(id) {
            Ok(Some(aside)) => {
                // What cannot be deleted, a later start deletes.
                drop(
                    self.runtime
                        .spawn_blocking(move || TenantDirectories::discard(&aside)),
                );
            }
            Ok(None) => {}
            Err(error) => {
                let text = format!("{id} is released, and its directory is still there: {error}");
                self.events
                    .say(Severity::Warning, "VcudaDirectoryFailed", text, Some(id.as_str()));
                self.leftovers.insert(id.clone());
            }
        }
    }

    /// Restores, without a request, what has to be right: the ledger can be written, and each grant has its directory.
    pub(super) fn look_after(&mut self) {
        if self.shared.problem.borrow().is_some() {
            match self.ledger.write(&self.grant_table) {
                Ok(()) => self.ledger_works(),
                Err(error) => self.ledger_failed(&error.to_string()),
            }
        }
        let (now_ns, changed) = (clock::now_ns(), self.directories.changed());
        let is_whole = |(then, at_ns): (SystemTime, u64)| {
            Some(then) == changed && now_ns < at_ns.saturating_add(WHOLE_NS)
        };
        if !self.pending.is_empty() || !self.found_whole.is_some_and(is_whole) {
            let is_whole = self.make_whole();
            self.found_whole = changed.filter(|_| is_whole).map(|changed| (changed, now_ns));
        }
        for id in std::mem::take(&mut self.leftovers) {
            if self.directories.is_used(&id) {
                self.leftovers.insert(id);
            } else {
                self.take_away(&id);
            }
        }
    }

    /// Makes directories again that are not as they should be. Returns whether all were.
    fn make_whole(&mut self) -> bool {
        let grant_table = Arc::clone(&self.grant_table);
        let mut were_whole = true;
        for grant in grant_table.grants() {
            let is_right =
                !self.pending.contains_key(&grant.number) && self.directories.is_present(&grant.id);
            if !is_right {
                were_whole = false;
                // Told, and tried again at the next look.
                let _ = self.ensure(grant, None);
            }
        }
        were_whole
    }

    /// Warns of a grant that no context fits into. To be called once the grant is shown: a listener looks it up.
    pub(super) fn tell_small(&self, grant: &Grant) {
        let rules = *self.shared.rules.lock();
        if let Some(text) = rules.too_small(&grant.amounts) {
            let id = Some(grant.id.as_str());
            self.events.say(Severity::Warning, "VcudaSmallMemory", text, id);
        }
    }

    fn tell_repaired(&self, grant: &Grant, ensured: &Ensured) {
        let what = match ensured {
            Ensured::Kept => return,
            Ensured::Made => {
                "its directory was gone and was made again; processes that run keep the files they have open"
            }
            Ensured::Repaired(what) => &format!("its {what} were not as granted and are again"),
        };
        let text = format!("{}: {what}", grant.id);
        self.events.say(
            Severity::Warning,
            "VcudaDirectoryRestored",
            text,
            Some(grant.id.as_str()),
        );
    }
}
