//! What serves a whole cluster, beside the parts on its nodes: an admission webhook for pods with shares of GPUs, and a scheduler
//! extender (docs/kubernetes.md).
//!
//! The story of one pod: the API server asks [`webhook`] before it makes the pod. [`review`] reads the question, [`admit`]
//! decides, and the answer is a patch or a sentence. If the pod has a claim, [`templates`] makes its template once the API server
//! has the pod. A scheduler asks [`extender`] on which nodes one GPU has what is asked for.
//!
//! [`kubectl`] is `kubectl vcuda`, for people.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

mod admit;
mod api;
pub mod config;
mod counters;
mod extender;
pub mod kubectl;
mod review;
mod run;
mod templates;
mod webhook;

pub use run::run;
