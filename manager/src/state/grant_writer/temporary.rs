//! Amounts that hold for a time: at its end the lasting ones come back.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::GrantWriter;
use super::step::Step;
use crate::events::{Severity, unix_ms};
use crate::grant::Grant;
use crate::grant_table::GrantTable;

impl GrantWriter {
    /// Gives each grant whose time is over its lasting amounts, for which room was kept. Returns these grants. Limits of another
    /// release cannot be written: such a grant waits.
    pub(super) fn end_times(&mut self, next: &mut GrantTable, steps: &mut Vec<Step>) -> Vec<Arc<Grant>> {
        let now_ms = unix_ms();
        let is_over =
            |grant: &&Arc<Grant>| grant.lasting.is_some_and(|lasting| lasting.until_unix_ms <= now_ms);
        let over: Vec<Arc<Grant>> = next
            .grants()
            .filter(is_over)
            .filter(|grant| self.directories.foreign(&grant.id).is_none())
            .cloned()
            .collect();
        let mut ended = Vec::new();
        for before in over {
            let after = Arc::new(Grant {
                amounts: before.lasting_amounts(),
                lasting: None,
                generation: before.generation + 1,
                changed_by: Some(format!("end-of-{}", before.generation)),
                ..Grant::clone(&before)
            });
            next.put(Arc::clone(&after));
            next.revision += 1;
            // No caller waits.
            let (reply, _) = oneshot::channel();
            steps.push(self.resized(Arc::clone(&after), Some(before), reply));
            ended.push(after);
        }
        ended
    }

    /// Tells of grants that have their lasting amounts again.
    pub(super) fn report_ended(&self, ended: &[Arc<Grant>]) {
        for grant in ended {
            let text =
                format!("{}: the time of its change is over; it has its lasting quota again", grant.id);
            self.events.say(Severity::Info, "VcudaChangeEnded", text, Some(grant.id.as_str()));
        }
    }
}
