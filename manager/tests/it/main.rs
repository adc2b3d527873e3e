//! The manager without a GPU: its API over its socket, and its metrics.

mod api;
mod metrics_files;
mod metrics_http;
