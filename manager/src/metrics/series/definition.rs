//! Definition of a series: name, kind, unit, labels, help.

use prometheus_client::registry::Unit;

use Kind::{Counter, Gauge, Histogram, Info};
use Of::{Bytes, Count, Ratio, Seconds};

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only up, from the making of the tenant (or of the manager).
    Counter,
    /// A distribution.
    Histogram,
    /// 1, for its labels.
    Info,
}

/// Unit, which ends the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A number.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// 0 to 1.
    Ratio,
}

/// One series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Without what unit and kind add.
    pub stem: &'static str,
    /// Kind of the values.
    pub kind: Kind,
    /// Object that the values describe.
    pub of: Of,
    /// A sentence without a full stop.
    pub help: &'static str,
    /// Beside `node`.
    pub labels: &'static [&'static str],
}

pub(super) const fn series(
    stem: &'static str,
    kind: Kind,
    of: Of,
    labels: &'static [&'static str],
    help: &'static str,
) -> Series {
    Series {
        stem,
        kind,
        of,
        help,
        labels,
    }
}

impl Series {
    /// As Prometheus stores it (a histogram: without `_bucket`, `_sum`, `_count`).
    #[must_use]
    pub fn name(&self) -> String {
        let unit = match self.of {
            Count => "",
            Bytes => "_bytes",
            Seconds => "_seconds",
            Ratio => "_ratio",
        };
        let kind = match self.kind {
            Gauge | Histogram => "",
            Counter => "_total",
            Info => "_info",
        };
        format!("{}{unit}{kind}", self.stem)
    }

    /// All names under which it is stored.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let name = self.name();
        match self.kind {
            Histogram => ["_bucket", "_sum", "_count"]
                .iter()
                .map(|end| format!("{name}{end}"))
                .collect(),
            Gauge | Counter | Info => vec![name],
        }
    }

    pub(in crate::metrics) fn unit(&self) -> Option<Unit> {
        match self.of {
            Count => None,
            Bytes => Some(Unit::Bytes),
            Seconds => Some(Unit::Seconds),
            Ratio => Some(Unit::Other("ratio".to_owned())),
        }
    }
}
