//! Steps that follow a write of the ledger, and the answers to the callers.

use std::sync::Arc;

use super::super::{ChangeKind, GrantError};
use super::Reply;
use crate::grant::{Grant, GrantId};

pub(super) enum Step {
    /// Bring the directory to what the grant says, then answer.
    Ensure { grant: Arc<Grant>, kind: Option<ChangeKind>, reply: Reply<Arc<Grant>> },
    /// Remove the directories, then answer.
    Remove { grants: Vec<Arc<Grant>>, reply: Reply<Vec<GrantId>> },
    /// Only answer.
    Answer(Answer),
}

/// Sends the result to the caller, or the error of an earlier step.
pub(super) type Answer = Box<dyn FnOnce(Result<(), GrantError>) + Send>;

/// The answer with this result, unless an earlier step failed.
pub(super) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, GrantError>) -> Answer {
    // A caller that no longer waits can repeat the request.
    Box::new(move |before| drop(reply.send(before.and(result))))
}

impl Step {
    /// A step that only answers.
    pub(super) fn answer<T: Send + 'static>(reply: Reply<T>, result: Result<T, GrantError>) -> Self {
        Self::Answer(answer(reply, result))
    }

    /// Refuses the step because the ledger was not written. Even a mere answer is refused, as it may depend on the batch.
    pub(super) fn refuse(self, error: &GrantError) {
        match self {
            Self::Ensure { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Remove { reply, .. } => drop(reply.send(Err(error.clone()))),
            Self::Answer(tell) => tell(Err(error.clone())),
        }
    }
}
