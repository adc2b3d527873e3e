//! Definition of a series: name, kind, unit, labels, help.

use prometheus_client::registry::Unit;

use Kind::{Counter, Gauge, Histogram, Info};
use SeriesUnit::{Bytes, Count, Ratio, Seconds};

/// Kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only increases, from the start of the tenant (or of the manager).
    Counter,
    /// A distribution.
    Histogram,
    /// The constant 1, for its labels.
    Info,
}

/// Unit, the suffix of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesUnit {
    /// A number.
    Count,
    /// Number of bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Ratio: 1 is the whole.
    Ratio,
}

/// Definition of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// Name without the suffixes for unit and kind.
    pub stem: &'static str,
    /// Kind of the values.
    pub kind: Kind,
    /// Unit of the values.
    pub unit: SeriesUnit,
    /// Meaning, a sentence without its full stop.
    pub help: &'static str,
    /// Labels besides `node`.
    pub labels: &'static [&'static str],
}

/// Value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::metrics) enum Value {
    Whole(u64),
    Real(f64),
}

pub(in crate::metrics) fn whole(number: u64) -> Option<Value> {
    Some(Value::Whole(number))
}

pub(in crate::metrics) fn truth(is_true: bool) -> Option<Value> {
    whole(is_true.into())
}

pub(in crate::metrics) fn real(number: Option<f64>) -> Option<Value> {
    number.map(Value::Real)
}

/// A ratio, from thousandths.
pub(in crate::metrics) fn ratio(permille: u32) -> Option<Value> {
    real(Some(f64::from(permille) / 1000.0))
}

/// Seconds, from nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of 100 days are exact")]
pub(in crate::metrics) fn seconds(ns: u64) -> Option<Value> {
    real(Some(ns as f64 / 1e9))
}

pub(super) const fn series(
    stem: &'static str,
    kind: Kind,
    unit: SeriesUnit,
    labels: &'static [&'static str],
    help: &'static str,
) -> Series {
    Series { stem, kind, unit, help, labels }
}

impl Series {
    /// Name in Prometheus (of a histogram: without `_bucket`, `_sum`, `_count`).
    pub fn name(&self) -> String {
        let unit = match self.unit {
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

    /// All names that Prometheus stores it under.
    pub fn names(&self) -> Vec<String> {
        let name = self.name();
        match self.kind {
            Histogram => ["_bucket", "_sum", "_count"].iter().map(|end| format!("{name}{end}")).collect(),
            Gauge | Counter | Info => vec![name],
        }
    }

    pub(in crate::metrics) fn encoder_unit(&self) -> Option<Unit> {
        match self.unit {
            Count => None,
            Bytes => Some(Unit::Bytes),
            Seconds => Some(Unit::Seconds),
            Ratio => Some(Unit::Other("ratio".to_owned())),
        }
    }
}
