//! Parts shared by the node's daemons, the manager and the device plugin: configuration ([`config`], [`value`]), logging
//! ([`logging`]), signals and exit statuses ([`life`]), lock files ([`lock_file`]), and HTTP pages for metrics, health and readiness ([`pages`],
//! [`text_format`], [`http`]). Feature `tls`: HTTP over TLS, with a certificate that may change (`tls`). Feature `api-server`: Kubernetes' API
//! server (`api_server`).
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

#[cfg(feature = "api-server")]
pub mod api_server;
pub mod config;
pub mod http;
pub mod life;
pub mod lock_file;
pub mod logging;
pub mod pages;
pub mod text_format;
#[cfg(feature = "tls")]
pub mod tls;
pub mod value;
