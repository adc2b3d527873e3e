//! The log: lines on stderr, for the journal; as JSON on request. The filter can be changed while it runs.

use std::fmt;

use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use crate::config::{Config, LogFormat};

/// The way to change the filter.
pub struct Logging {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logging")
    }
}

impl Logging {
    /// Starts the log as configured. Once in a process.
    #[must_use]
    pub fn start(config: &Config) -> Logging {
        let (filter, handle) = reload::Layer::new(filter(config));
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_span_events(FmtSpan::NONE);
        let lines = match config.log_format {
            LogFormat::Text => lines.with_ansi(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        // A second one in the same process (a test) keeps the first's.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Logging { filter: handle }
    }

    /// Takes over the filter of a configuration that was read again.
    pub fn follow(&self, config: &Config) {
        if self.filter.reload(filter(config)).is_err() {
            tracing::warn!("the log's filter stays as it is");
        }
    }
}

/// The configuration has checked it.
fn filter(config: &Config) -> EnvFilter {
    EnvFilter::try_new(&config.log_filter).unwrap_or_else(|_| EnvFilter::new("info"))
}
