//! Parts shared by the node's daemons, the manager and the device plugin: configuration ([`config`], [`value`]), logging
//! ([`logging`]), signals and exit statuses ([`life`]), and HTTP pages for metrics, health and readiness ([`pages`],
//! [`http`]). Feature `tls`: HTTP over TLS, with a certificate that may change (`tls`).
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod config;
pub mod http;
pub mod life;
pub mod logging;
pub mod pages;
#[cfg(feature = "tls")]
pub mod tls;
pub mod value;
