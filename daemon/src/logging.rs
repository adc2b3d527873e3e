//! The log: lines on stderr, for the journal; as JSON on request. The filter can be changed while it runs.

use std::fmt;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use crate::value::{Filter, LogFormat};

/// Messages that are logged, and their format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// Filter of messages.
    pub filter: Filter,
    /// Format of messages. It stays as it was at the start.
    pub format: LogFormat,
}

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
    /// Starts the log. Once in a process.
    #[must_use]
    pub fn start(log: &Log) -> Self {
        let (filter, handle) = reload::Layer::new(log.filter.layer());
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match log.format {
            LogFormat::Text => lines.with_ansi(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        // A second one in the same process (a test) keeps the first's.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self { filter: handle }
    }

    /// Takes over the filter of a configuration that was read again. False: the log is not this one's, and stays.
    #[must_use]
    pub fn follow(&self, log: &Log) -> bool {
        self.filter.reload(log.filter.layer()).is_ok()
    }
}
