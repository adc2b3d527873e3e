//! Parts that the node's daemons, the manager and the device plugin, share: they read a configuration and refuse a wrong
//! one with its line ([`config`], [`value`]), log ([`logging`]), end by signals with documented statuses ([`life`]), and
//! serve metrics, health and readiness ([`pages`]) without being held up by a client ([`http`]).
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

pub mod config;
pub mod http;
pub mod life;
pub mod logging;
pub mod pages;
pub mod value;
