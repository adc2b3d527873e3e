//! Reports of the machine: the exact record, memory, and NVML's delayed and rounded view.

use crate::Machine;
use crate::commit::{CannotCommit, Change};
use crate::core::{Core, PERIODS, UseRow};
use crate::layout::{as_index, split};
use crate::process_table::unpack_name;
use crate::report::{GpuMemory, GpuReport, ProcessReport, ProcessUse, Report, Sample};
use crate::shared::{Local, Shared};
use crate::{engine, history, ring};

/// Calls `see` with the present core, after removal of dead processes. If this process cannot write (disk full, no slot
/// free), it sees the last commit.
pub(crate) fn look<R>(shared: &Shared, mut see: impl FnMut(&Core) -> R) -> Result<R, CannotCommit> {
    let local = &mut *shared.local.lock();
    let up_to_date = shared
        .end_dead_processes(local)
        .and_then(|()| shared.record_host_pids(local))
        .and_then(|()| shared.record_cgroups(local))
        .and_then(|()| shared.transact(local, Some(shared.now()), |core| Change::None(see(core))));
    match up_to_date {
        Err(CannotCommit::DiskFull | CannotCommit::NoSlot) => {
            shared.refresh(local)?;
            Ok(see(&local.base))
        }
        answer => answer,
    }
}

impl Machine {
    /// The exact record, up to now.
    pub fn report(&self) -> Report {
        let shared = self.shared();
        look(shared, |core| {
            let dead = (0..core.history).map(|index| dead_process(shared, index));
            let living = core.uses.iter().map(|row| living_process(shared, core, row));
            Report { gpus: gpus(shared, core), processes: dead.chain(living).collect() }
        })
        .unwrap_or_default()
    }

    /// Memory of a GPU (zeroes for one that does not exist). Dead processes hold none.
    pub fn memory(&self, gpu: usize) -> GpuMemory {
        let shared = self.shared();
        let Some(config) = shared.config.gpus.get(gpu) else {
            return GpuMemory::default();
        };
        look(shared, |core| {
            let uses = core.uses.iter().filter(|row| as_index(row.gpu) == gpu);
            let of_none = rounded(shared, core.objects_of(None, gpu as u64));
            let reported = uses.fold(of_none, |sum: u64, row| sum.saturating_add(rounded(shared, row.used)));
            let (used, peak) = core.gpus.get(gpu).map_or((0, 0), |row| (row.used, row.peak));
            GpuMemory {
                total_bytes: config.memory_bytes,
                used_bytes: used,
                reported_bytes: reported.min(config.memory_bytes),
                peak_bytes: peak,
            }
        })
        .unwrap_or_default()
    }

    /// Living processes with a context on the GPU.
    pub fn processes(&self, gpu: usize) -> Vec<ProcessUse> {
        let shared = self.shared();
        look(shared, |core| {
            let has_context = |row: &&UseRow| {
                let mut contexts = core.contexts.iter();
                as_index(row.gpu) == gpu
                    && !core.is_away(row.client)
                    && contexts.any(|other| other.client == row.client && other.gpu == row.gpu)
            };
            let name =
                |client| core.clients.iter().find(|row| row.id == client).map(|row| unpack_name(&row.name));
            let rows = core.uses.iter().filter(has_context);
            rows.map(|row| ProcessUse {
                pid: pid(core, row.client),
                seen: shared.seen_as(core, row.client),
                name: name(row.client).unwrap_or_default(),
                memory_used_bytes: row.used,
                memory_reported_bytes: rounded(shared, reported_use(shared, row)),
                service_ns: row.service,
            })
            .collect()
        })
        .unwrap_or_default()
    }

    /// Percentage of the last complete sample period in which a kernel ran.
    pub fn utilization(&self, gpu: usize) -> u32 {
        let shared = self.shared();
        let length = shared.config.sample_ns;
        look(shared, |core| {
            let last = (core.now / length).checked_sub(1)?;
            Some(percent(core.gpus.get(gpu)?.busy.in_period(last), length))
        })
        .ok()
        .flatten()
        .unwrap_or(0)
    }

    /// Nonzero utilization of processes in complete sample periods that ended after `since_ns`, the oldest first. Only the
    /// last few periods are known.
    pub fn samples(&self, gpu: usize, since_ns: u64) -> Vec<Sample> {
        let shared = self.shared();
        let length = shared.config.sample_ns;
        look(shared, |core| {
            let current = core.now / length;
            let periods = current.saturating_sub(PERIODS - 1)..current;
            let new = periods.filter(|period| (period + 1) * length > since_ns);
            let in_period = |period: u64| {
                let rows = core.uses.iter().filter(|row| as_index(row.gpu) == gpu);
                let busy = rows.map(move |row| (row, row.busy.in_period(period))).filter(|(_, ns)| *ns > 0);
                busy.map(move |(row, ns)| Sample {
                    pid: pid(core, row.client),
                    seen: shared.seen_as(core, row.client),
                    percent: percent(ns, length),
                    timestamp_ns: (period + 1) * length,
                })
            };
            new.flat_map(in_period).collect()
        })
        .unwrap_or_default()
    }

    /// Time of the next change if nothing more is submitted (machine clock, ns). A harness can step a virtual clock to it
    /// without missing an event. `None`: nothing is going on, or all work waits for a host.
    pub fn next_event_ns(&self) -> Option<u64> {
        let shared = self.shared();
        look(shared, |_| ()).ok()?;
        let Local { base, work, scratch, .. } = &mut *shared.local.lock();
        work.copy_from(base);
        // The commit may be older than now, but nothing has happened since.
        engine::next_event(work, &shared.map, &shared.rules, scratch)
    }
}

fn gpus(shared: &Shared, core: &Core) -> Vec<GpuReport> {
    let rows = core.gpus.iter().zip(&shared.config.gpus);
    rows.map(|(row, config)| GpuReport {
        uuid: config.uuid.clone(),
        memory_total_bytes: config.memory_bytes,
        memory_used_bytes: row.used,
        memory_peak_bytes: row.peak,
        busy_ns: row.busy_ns,
        switched_ns: row.switched_ns,
    })
    .collect()
}

fn dead_process(shared: &Shared, index: u64) -> ProcessReport {
    let row = history::read(&shared.map, index);
    ProcessReport {
        pid: number(row.pid),
        gpu_uuid: uuid(shared, row.gpu),
        alive: false,
        first_ns: row.first,
        last_ns: row.last,
        service_ns: row.service,
        memory_used_bytes: 0,
        memory_peak_bytes: row.peak,
        launches: row.launches,
        denied_allocations: row.denied,
    }
}

fn living_process(shared: &Shared, core: &Core, row: &UseRow) -> ProcessReport {
    let streams = core.streams.iter().filter(|stream| stream.client == row.client && stream.gpu == row.gpu);
    let submitted = |id: u64| ring::kernels(&shared.map, split(id).0);
    let launches: u64 = streams.map(|stream| submitted(stream.id).saturating_sub(stream.kernels)).sum();
    ProcessReport {
        pid: pid(core, row.client),
        gpu_uuid: uuid(shared, row.gpu),
        alive: true,
        first_ns: row.first,
        last_ns: row.last,
        service_ns: row.service,
        memory_used_bytes: row.used,
        memory_peak_bytes: row.peak,
        launches: row.launches + launches,
        denied_allocations: row.denied,
    }
}

fn percent(ns: u64, length: u64) -> u32 {
    number((ns * 100 / length).min(100))
}

fn rounded(shared: &Shared, bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(shared.config.granularity_bytes).unwrap_or(u64::MAX)
}

/// Memory of a process as NVML counts it.
fn reported_use(shared: &Shared, row: &UseRow) -> u64 {
    if shared.config.driver.nvml_counts_managed { row.used } else { row.used.saturating_sub(row.managed) }
}

fn pid(core: &Core, client: u64) -> u32 {
    core.clients.iter().find(|row| row.id == client).map_or(0, |row| number(row.pid))
}

fn uuid(shared: &Shared, gpu: u64) -> String {
    shared.config.gpus.get(as_index(gpu)).map_or_else(String::new, |config| config.uuid.clone())
}

fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
