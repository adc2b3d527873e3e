//! Encoding of rows as series: each series with its value for each row.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use vcuda_region::{GpuUuid, release};

use super::instruments::Instruments;
use super::rows::{DeviceRow, Granted, OnGpu, TenantRow, by_gpu, rows};
use super::series::{self, Kind, OfManager, Row, Series, Value};
use super::{Sources, age_seconds, labels};
use crate::gpu::Inventory;

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
        let audited = self.instruments.audited();
        let rows = rows(&inventory, &snapshot, &grants, &audited, &*self.sources.states);
        let mut page = Page { encoder };
        let cordoned = (self.sources.cordoned)();
        page.gpus(&inventory, &by_gpu(&rows), &cordoned, &audited.unregistered_bytes)?;
        page.tenants_by_gpu(&rows)?;
        page.tenants(&rows)?;
        let manager = OfManager {
            has_inventory_problem: inventory.problem.is_some(),
            has_ledger_problem: (self.sources.has_problem)(),
            snapshot_age_seconds: (snapshot.number > 0).then(|| age_seconds(snapshot.taken_ns)),
            arbiter_age_seconds: self.instruments.arbiter_age_seconds(),
        };
        let no_labels: &[(&str, &str)] = &[];
        page.table(series::MANAGER, &[(no_labels, &manager)], |row, manager| (row.value)(manager))?;
        let build = [("version", env!("CARGO_PKG_VERSION")), ("layout", &release::layouts().1.to_string())];
        page.series(&series::BUILD, std::iter::once((build, ONE)))
    }
}

/// Value of a sample whose labels tell all.
const ONE: Value = Value::Whole(1);

/// No labels besides `node`.
struct Page<'e> {
    encoder: DescriptorEncoder<'e>,
}

impl Page<'_> {
    /// Encodes each series of a table, with its value for each of the subjects.
    fn table<F, L: EncodeLabelSet + Copy, S>(
        &mut self,
        table: &[Row<F>],
        subjects: &[(L, S)],
        value: impl Fn(&Row<F>, &S) -> Option<Value>,
    ) -> fmt::Result {
        for row in table {
            let values = subjects.iter().filter_map(|(labels, of)| Some((*labels, value(row, of)?)));
            self.series(&row.series, values)?;
        }
        Ok(())
    }

    fn gpus(
        &mut self,
        inventory: &Inventory,
        granted: &BTreeMap<GpuUuid, Granted>,
        cordoned: &BTreeSet<GpuUuid>,
        unregistered_bytes: &BTreeMap<GpuUuid, u64>,
    ) -> fmt::Result {
        let uuids: Vec<String> = inventory.gpus.iter().map(|gpu| gpu.uuid.to_string()).collect();
        let of = inventory.gpus.iter().map(|gpu| OnGpu {
            gpu,
            granted: granted.get(&gpu.uuid).copied().unwrap_or_default(),
            is_cordoned: cordoned.contains(&gpu.uuid),
            unregistered_bytes: unregistered_bytes.get(&gpu.uuid).copied().unwrap_or(0),
        });
        let gpus: Vec<_> = uuids.iter().map(|uuid| [("gpu_uuid", uuid.as_str())]).zip(of).collect();
        self.table(series::GPUS, &gpus, |row, of| (row.value)(of))?;
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
            (labels, ONE)
        });
        self.series(&series::GPU_INFO, infos)
    }

    fn tenants_by_gpu(&mut self, rows: &[TenantRow<'_>]) -> fmt::Result {
        // Labels are built once for all series, as they are most of a scrape's text.
        let of_row = |row| move |device| (labels_on_gpu(row, device), device);
        let devices: Vec<(Labels<'_>, &DeviceRow)> =
            rows.iter().flat_map(|row| row.devices.iter().map(of_row(row))).collect();
        let labelled: Vec<_> = devices.iter().map(|(labels, device)| (labels.as_slice(), *device)).collect();
        self.table(series::DEVICES, &labelled, |row, device| (row.value)(device))?;
        let quotas = devices.iter().map(|(labels, device)| (with_quota(labels, device), ONE));
        self.series(&series::QUOTA, quotas)
    }

    fn tenants(&mut self, rows: &[TenantRow<'_>]) -> fmt::Result {
        let tenants: Vec<_> = rows.iter().map(|row| (labels_of(row), row)).collect();
        self.table(series::TENANTS, &tenants, |row, tenant| (row.value)(tenant))?;
        let states = rows.iter().map(|row| {
            let [namespace, pod, container] = labels_of(row);
            ([namespace, pod, container, ("state", row.state.name())], ONE)
        });
        self.series(&series::STATE, states)
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

fn labels_of<'r>(row: &'r TenantRow<'_>) -> [(&'static str, &'r str); 3] {
    let labels = &row.labels;
    [("namespace", &labels.namespace), ("pod", &labels.pod), ("container", &labels.container)]
}

type Labels<'r> = Vec<(&'static str, Cow<'r, str>)>;

/// Adds the quota's labels to a tenant's on a GPU.
fn with_quota<'r>(labels: &Labels<'r>, device: &DeviceRow) -> Labels<'r> {
    let mut labels = labels.clone();
    labels.push(("policy", device.quota.policy.name().into()));
    labels.push(("priority", device.quota.priority.name().into()));
    labels
}

fn labels_on_gpu<'r>(row: &'r TenantRow<'_>, device: &DeviceRow) -> Labels<'r> {
    let labels = labels_of(row).map(|(name, value)| (name, value.into()));
    [("gpu_uuid", device.gpu.to_string().into())].into_iter().chain(labels).collect()
}
