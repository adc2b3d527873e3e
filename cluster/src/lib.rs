//! What serves a whole cluster, beside the parts on its nodes: an admission webhook for pods with shares of GPUs
//! (docs/kubernetes.md).
//!
//! The story of one pod: the API server asks [`webhook`] before it makes the pod. [`review`] reads the question, [`admit`]
//! decides, [`templates`] makes the claim's template if there is one, and the answer is a patch or a sentence.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod admit;
pub mod api;
pub mod config;
pub mod counters;
pub mod review;
pub mod run;
pub mod templates;
pub mod webhook;
