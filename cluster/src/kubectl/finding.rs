//! What keeps a pod from starting, and what to do.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Origin of the reason: an event's reason, or a part of the pod.
    pub(crate) source: String,
    /// The reason, in the words of its origin.
    pub(crate) reason: String,
    /// Remedy for the pod's author or the cluster's operator.
    pub(crate) remedy: String,
}
