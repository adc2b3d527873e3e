//! Log on stderr, as text or JSON. The filter can be changed while the daemon runs.

use std::fmt;

use serde::Deserialize;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use crate::value::{Filter, LogFormat};

/// Settings of the log: table `[log]` of a daemon's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Filter of messages.
    pub filter: Filter,
    /// Format of lines, which stays as it was at the start.
    pub format: LogFormat,
}

impl Log {
    /// These settings, or the flags' where there are any.
    pub fn with(self, filter: Option<&Filter>, format: Option<LogFormat>) -> Log {
        Log { filter: filter.cloned().unwrap_or(self.filter), format: format.unwrap_or(self.format) }
    }
}

/// Handle to change the filter.
pub struct Logging {
    filter: reload::Handle<EnvFilter, Registry>,
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Logging")
    }
}

impl Logging {
    /// Starts the log of this process. To be called once.
    pub fn start(log: &Log) -> Self {
        let (filter, handle) = reload::Layer::new(log.filter.layer());
        let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
        let lines = match log.format {
            LogFormat::Text => lines.with_ansi(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        // A second log in the same process (a test) has no effect.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self { filter: handle }
    }

    /// Replaces the filter. Returns false if this is not the process's log.
    pub fn set_filter(&self, log: &Log) -> bool {
        self.filter.reload(log.filter.layer()).is_ok()
    }
}
