//! Steps that follow from a change of the table of grants once the ledger is written, and the answers to the callers.

use std::sync::Arc;

use super::super::{ChangeKind, GrantError};
use super::Reply;
use crate::grant::{Grant, GrantId};

/// A step to be done once the ledger is written.
pub(super) enum Step {
    /// Bring the directory to what the grant says.
    Ensure {
        grant: Arc<Grant>,
        kind: Option<ChangeKind>,
        reply: Reply<Arc<Grant>>,
    },
    /// Take the directories away.
    Remove {
        grants: Vec<Arc<Grant>>,
        reply: Reply<Vec<GrantId>>,
    },
    /// Only answer.
    Answer(Answer),
}

/// Tells the caller the result, unless something else went wrong first.
pub(super) type Answer = Box<dyn FnOnce(Result<(), GrantError>) + Send>;

/// The answer of a change that came out so, unless something else goes wrong first.
pub(super) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, GrantError>) -> Answer {
    // A caller that no longer waits learns it by repeating the request.
    Box::new(move |before| drop(reply.send(before.and(result))))
}

impl Step {
    /// Only the answer.
    pub(super) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, GrantError>) -> Self {
        Self::Answer(answer(reply, result))
    }

    /// Nothing of the batch happened. What was only to be answered may rest on what did not happen: it is refused too.
    pub(super) fn refuse(self, error: &GrantError) {
        match self {
            Self::Ensure { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Remove { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Answer(tell) => tell(Err(error.clone())),
        }
    }
}
