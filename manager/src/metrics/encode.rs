//! Encoding of rows as series: each series with its value for each row.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use vcuda_region::release;

use super::instruments::{Audited, Instruments};
use super::rows::{DeviceRow, Granted, TenantRow, by_gpu, rows};
use super::series::{self, Kind, Series};
use super::{Sources, age_seconds, labels};
use crate::gpu::{Gpu, Health, Inventory};

/// Data gathered for one scrape.
#[derive(Debug)]
pub(super) struct Scraped {
    pub(super) sources: Sources,
    pub(super) instruments: Arc<Instruments>,
}

impl Collector for Scraped {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let inventory = self.sources.inventory.borrow().clone();
        let snapshot = self.sources.tenants.fresh();
        let grants = (self.sources.grants)();
        let rows = rows(&inventory, &snapshot, &grants, &*self.sources.states);
        let audited = self.instruments.audited();
        let mut page = Page { encoder };
        page.gpus(&inventory, &rows, &audited)?;
        page.tenants_by_gpu(&rows, &audited)?;
        page.tenants(&rows)?;
        page.one(&series::INVENTORY_PROBLEM, Some(Value::truth(inventory.problem.is_some())))?;
        page.one(&series::LEDGER_PROBLEM, Some(Value::truth((self.sources.has_problem)())))?;
        let looked = (snapshot.number > 0).then(|| Value::Real(age_seconds(snapshot.taken_ns)));
        page.one(&series::SNAPSHOT_AGE, looked)?;
        page.one(&series::ARBITER_AGE, self.instruments.arbiter_age_seconds().map(Value::Real))?;
        let build =
            [("version", env!("CARGO_PKG_VERSION").to_owned()), ("layout", release::layouts().1.to_string())];
        page.series(&series::BUILD, std::iter::once((build, Value::Whole(1))))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Whole(u64),
    Real(f64),
}

impl Value {
    fn truth(is_true: bool) -> Self {
        Self::Whole(u64::from(is_true))
    }

    /// A ratio, from thousandths.
    fn permille(permille: u32) -> Self {
        Self::Real(f64::from(permille) / 1000.0)
    }

    /// Seconds, from nanoseconds.
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of 100 days are exact")]
    fn seconds(ns: u64) -> Self {
        Self::Real(ns as f64 / 1e9)
    }
}

/// No labels besides `node`.
const NO_LABELS: &[(&str, &str)] = &[];

struct Page<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl Page<'_> {
    fn gpus(&mut self, inventory: &Inventory, rows: &[TenantRow], audited: &Audited) -> fmt::Result {
        let granted = by_gpu(rows);
        let of = |gpu: &Gpu| granted.get(&gpu.uuid).copied().unwrap_or_default();
        let mut each = |series: &Series, value: &dyn Fn(&Gpu, Granted) -> Option<Value>| {
            let values = inventory.gpus.iter().filter_map(|gpu| {
                let labels = [("gpu_uuid", gpu.uuid.to_string())];
                Some((labels, value(gpu, of(gpu))?))
            });
            self.series(series, values)
        };
        each(&series::MEMORY_TOTAL, &|gpu, _| Some(Value::Whole(gpu.memory_total_bytes)))?;
        each(&series::MEMORY_USED, &|gpu, _| Some(Value::Whole(gpu.memory_used_bytes)))?;
        each(&series::MEMORY_GRANTED, &|_, granted| Some(Value::Whole(granted.bytes)))?;
        each(&series::CORES_GRANTED, &|_, granted| Some(Value::permille(granted.permille)))?;
        each(&series::UTILIZATION, &|gpu, _| {
            let percent = gpu.utilization_percent?;
            Some(Value::permille(percent.saturating_mul(10)))
        })?;
        each(&series::SHARES, &|_, granted| Some(Value::Whole(granted.shares)))?;
        each(&series::HEALTHY, &|gpu, _| Some(Value::truth(gpu.health == Health::Healthy)))?;
        each(&series::AUDIT_UNREGISTERED, &|gpu, _| {
            Some(Value::Whole(audited.unregistered_bytes.get(&gpu.uuid).copied().unwrap_or(0)))
        })?;
        self.gpu_info(inventory)?;
        let xids = inventory.xids.iter().map(|((gpu, xid), count)| {
            ([("gpu_uuid", gpu.to_string()), ("xid", xid.to_string())], Value::Whole(*count))
        });
        self.series(&series::XID, xids)
    }

    fn gpu_info(&mut self, inventory: &Inventory) -> fmt::Result {
        let infos = inventory.gpus.iter().map(|gpu| {
            let labels = [
                ("gpu_uuid", gpu.uuid.to_string()),
                ("name", labels::bounded(&gpu.name).into_owned()),
                ("driver_version", labels::bounded(&inventory.driver_version).into_owned()),
                ("pci_bus_id", labels::bounded(&gpu.pci_bus_id).into_owned()),
            ];
            (labels, Value::Whole(1))
        });
        self.series(&series::GPU_INFO, infos)
    }

    fn tenants_by_gpu(&mut self, rows: &[TenantRow], audited: &Audited) -> fmt::Result {
        // Labels are built once for all series, as they are most of a scrape's text.
        let devices: Vec<_> = rows
            .iter()
            .flat_map(|row| row.devices.iter().map(move |device| (labels_on_gpu(row, device), row, device)))
            .collect();
        let mut each = |series: &Series, value: &dyn Fn(&TenantRow, &DeviceRow) -> Value| {
            self.series(
                series,
                devices.iter().map(|(labels, row, device)| (labels.as_slice(), value(row, device))),
            )
        };
        each(&series::LIMIT, &|_, device| Value::Whole(device.limit_bytes))?;
        each(&series::USED, &|_, device| Value::Whole(device.used.bytes))?;
        each(&series::PEAK, &|_, device| Value::Whole(device.used.peak_bytes))?;
        each(&series::CONTEXT, &|_, device| Value::Whole(device.used.overhead_bytes))?;
        each(&series::BUFFER, &|_, device| {
            Value::Whole(device.used.bytes.saturating_sub(device.used.overhead_bytes))
        })?;
        each(&series::SUSPENDED, &|_, device| Value::Whole(device.away_bytes))?;
        each(&series::CORES_LIMIT, &|_, device| Value::permille(device.cap_permille))?;
        each(&series::CORES_GUARANTEE, &|_, device| Value::permille(device.promised_permille))?;
        each(&series::CORES_USED, &|_, device| Value::permille(device.used.cores_permille))?;
        each(&series::DENIED, &|_, device| Value::Whole(device.used.denied))?;
        each(&series::LAUNCHES, &|_, device| Value::Whole(device.used.launches))?;
        each(&series::GPU_SECONDS, &|_, device| Value::seconds(device.used.served_ns))?;
        each(&series::HELD, &|_, device| Value::seconds(device.used.held_ns))?;
        each(&series::ON_DEBT, &|_, device| Value::Whole(device.used.debt_admits))?;
        each(&series::FORGIVEN, &|_, device| Value::seconds(device.used.forgiven_ns))?;
        each(&series::GENERATION, &|row, _| Value::Whole(row.limits_generation))?;
        each(&series::AUDIT_OVER, &|row, device| {
            let over = audited.over_bytes.get(&(row.id.clone(), device.gpu));
            Value::Whole(over.copied().unwrap_or(0))
        })?;
        let quotas = devices.iter().map(|(labels, _, device)| (with_quota(labels, device), Value::Whole(1)));
        self.series(&series::QUOTA, quotas)
    }

    fn tenants(&mut self, rows: &[TenantRow]) -> fmt::Result {
        let mut each = |series: &Series, value: &dyn Fn(&TenantRow) -> Value| {
            self.series(series, rows.iter().map(|row| (labels_of(row), value(row))))
        };
        each(&series::ATTACHED, &|row| Value::truth(row.is_attached))?;
        each(&series::FINDINGS, &|row| Value::Whole(row.findings))?;
        each(&series::PROCESSES, &|row| Value::Whole(row.processes))?;
        let states = rows.iter().map(|row| {
            let [namespace, pod, container] = labels_of(row);
            let labels = [namespace, pod, container, ("state", row.state.name())];
            (labels, Value::Whole(1))
        });
        self.series(&series::STATE, states)
    }

    fn one(&mut self, series: &Series, value: Option<Value>) -> fmt::Result {
        self.series(series, value.into_iter().map(|value| (NO_LABELS, value)))
    }

    /// Encodes a series with its rows. Without rows it is left out, name included, as an empty family says nothing.
    fn series<L: EncodeLabelSet>(
        &mut self,
        series: &Series,
        rows: impl Iterator<Item = (L, Value)>,
    ) -> fmt::Result {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let kind = match series.kind {
            Kind::Gauge => MetricType::Gauge,
            Kind::Counter => MetricType::Counter,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        let (unit, help) = (series.encoder_unit(), format!("{}.", series.help));
        let mut metric = self.encoder.encode_descriptor(series.stem, &help, unit.as_ref(), kind)?;
        for (labels, value) in rows {
            if series.kind == Kind::Info {
                metric.encode_info(&labels)?;
                continue;
            }
            let mut labelled = metric.encode_family(&labels)?;
            match (series.kind, value) {
                (Kind::Counter, Value::Whole(value)) => {
                    labelled.encode_counter::<NoLabelSet, _, u64>(&value, None)?
                }
                (Kind::Counter, Value::Real(value)) => {
                    labelled.encode_counter::<NoLabelSet, _, u64>(&value, None)?
                }
                (_, Value::Whole(value)) => labelled.encode_gauge(&value)?,
                (_, Value::Real(value)) => labelled.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

fn labels_of(row: &TenantRow) -> [(&'static str, &str); 3] {
    let labels = &row.labels;
    [("namespace", &labels.namespace), ("pod", &labels.pod), ("container", &labels.container)]
}

type Labels<'r> = Vec<(&'static str, Cow<'r, str>)>;

/// Adds the quota's labels to a tenant's on a GPU.
fn with_quota<'r>(labels: &Labels<'r>, device: &DeviceRow) -> Labels<'r> {
    let mut labels = labels.clone();
    labels.push(("policy", device.policy.name().into()));
    labels.push(("priority", device.priority.name().into()));
    labels
}

fn labels_on_gpu<'r>(row: &'r TenantRow, device: &DeviceRow) -> Labels<'r> {
    let labels = labels_of(row).map(|(name, value)| (name, value.into()));
    [("gpu_uuid", device.gpu.to_string().into())].into_iter().chain(labels).collect()
}
