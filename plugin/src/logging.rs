//! The log: lines on stderr; as JSON on request.

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

use crate::config::{Config, LogFormat};

/// Starts the log as configured. Once in a process.
pub fn start(config: &Config) {
    // The configuration has checked it.
    let filter = EnvFilter::try_new(&config.log_filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match config.log_format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    // A second one in the same process (a test) keeps the first's.
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
}
