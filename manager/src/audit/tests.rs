use vcuda_quota::DeviceConfig;

use super::evaluation::list;
use super::findings::Owner;
use super::*;
use crate::observe::{Device, Process, Snapshot, Tenant};

const GPU: GpuUuid = GpuUuid::from_bytes([1; 16]);
const GIB: u64 = 1 << 30;

fn tenant(id: &str, limit_bytes: u64, used_bytes: u64) -> Tenant {
    let device = Device { used_bytes, ..Device::unused(GPU, DeviceConfig::new(limit_bytes, 1000)) };
    Tenant { id: id.to_owned(), devices: vec![device], ..Tenant::default() }
}

/// As [`tenant`], with a process.
fn living(id: &str, limit_bytes: u64, used_bytes: u64) -> Tenant {
    Tenant { processes: vec![process(4_000_001, true)], ..tenant(id, limit_bytes, used_bytes) }
}

fn process(host_pid: u32, registered: bool) -> Process {
    Process { host_pid: Some(host_pid), pid: host_pid, registered, used_bytes: vec![0], ..Process::default() }
}

struct Bench {
    root: tempfile::TempDir,
    audit: Audit,
    snapshot: Snapshot,
}

impl Bench {
    fn new(tenants: Vec<Tenant>) -> Self {
        let root = tempfile::tempdir().unwrap();
        let audit = Audit::new(Attribution::new(root.path()), Arc::default(), Arc::default());
        let snapshot = Snapshot { tenants, number: 1, ..Snapshot::default() };
        Self { root, audit, snapshot }
    }

    /// Reason and tenant of the reports after `looks` looks with these processes on the GPU.
    fn told(&mut self, looks: u32, uses: &[(u32, u64)]) -> Vec<(&'static str, Option<String>)> {
        let uses: Vec<_> = uses.iter().map(|(pid, bytes)| (*pid, Some(*bytes))).collect();
        let processes = move |_: &GpuUuid| Ok(uses.clone());
        for _ in 0..looks {
            let listed = list(&self.snapshot, &processes);
            self.audit.evaluate(&self.snapshot, &listed, &|_| false, &|id| id.starts_with("pod"));
        }
        let (events, _) = self.audit.events.listen(0);
        events
            .into_iter()
            .map(|event| (&*event.report.reason.into_owned().leak(), event.report.tenant))
            .collect()
    }

    fn count(&self, reason: &str) -> u64 {
        self.audit.counts.lock()[reason]
    }
}

fn about(reason: &'static str, tenant: &str) -> (&'static str, Option<String>) {
    (reason, Some(tenant.to_owned()))
}

#[test]
fn nothing_is_found_where_all_is_well() {
    let mut a = tenant("a", GIB, GIB / 2);
    a.processes.push(process(4_000_001, true));
    let mut bench = Bench::new(vec![a]);
    assert_eq!(bench.told(5, &[(4_000_001, GIB / 2 + (60 << 20))]), []);
    assert!(bench.audit.findings.lock().is_empty());
}

#[test]
fn a_process_that_nothing_binds_is_told_once_it_stays() {
    let mut bench = Bench::new(vec![tenant("a", GIB, 0)]);
    let stray = [(4_000_002, GIB)];
    assert_eq!(bench.told(LOOKS - 1, &stray), []);
    assert_eq!(bench.told(1, &stray), [(UNREGISTERED, None)]);
    assert_eq!(bench.told(5, &stray), [(UNREGISTERED, None)], "told once");
    assert_eq!(bench.count(UNREGISTERED), 1, "and counted once");
    // The finding ends, and comes again.
    bench.told(1, &[]);
    bench.told(LOOKS, &stray);
    assert_eq!(bench.count(UNREGISTERED), 2);
}

#[test]
fn more_than_the_quota_and_less_than_the_truth() {
    let mut a = tenant("a", GIB, GIB / 2);
    a.processes.push(process(4_000_001, true));
    let mut bench = Bench::new(vec![a]);
    assert_eq!(bench.told(LOOKS, &[(4_000_001, GIB - 1)]), [about(TAMPERED, "a")], "it lies");
    assert_eq!(bench.audit.findings.lock()["a"].len(), 1);
    let told = bench.told(LOOKS, &[(4_000_001, 2 * GIB)]);
    assert_eq!(told, [about(TAMPERED, "a"), about(OVER_LIMIT, "a")]);
    bench.told(1, &[(4_000_001, GIB / 2)]);
    assert!(bench.audit.findings.lock().is_empty(), "it is over");
}

#[test]
fn a_limit_lowered_below_the_use_is_no_breach() {
    let mut bench = Bench::new(vec![living("a", 4 * GIB, 3 * GIB)]);
    assert_eq!(bench.told(1, &[]), []);
    bench.snapshot.tenants = vec![living("a", GIB, 3 * GIB)];
    assert_eq!(bench.told(10, &[]), [about(LIMIT_BELOW_USE, "a")]);
    assert!(bench.audit.findings.lock().is_empty(), "it is a note");
    assert!(bench.audit.audited.lock().over_bytes.is_empty());
    // Growth above the limit is a breach.
    bench.snapshot.tenants = vec![living("a", GIB, 4 * GIB)];
    let told = bench.told(LOOKS, &[]);
    assert_eq!(told, [about(LIMIT_BELOW_USE, "a"), about(OVER_LIMIT, "a")]);
    let (events, _) = bench.audit.events.listen(0);
    let last = events.last().unwrap();
    assert!(last.report.message.contains("has 4 GiB of"), "{last:?}");
    bench.told(100, &[]);
    let (events, _) = bench.audit.events.listen(0);
    assert_eq!((events.len(), events[1].count), (2, 101), "once, then counted");
}

#[test]
fn a_process_of_a_tenant_without_its_limits_is_found_by_its_environment() {
    let mut bench = Bench::new(vec![tenant("a", GIB, 0)]);
    let directory = bench.root.path().join("containers/a");
    std::fs::create_dir_all(&directory).unwrap();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "echo ready; read never"])
        .env("VCUDA_DIR", &directory)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Waits until the child runs its program: before, its environment is not in place (execve(2)).
    let mut ready = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    bench.snapshot.tenants[0].is_transient = true;
    let told = bench.told(LOOKS, &[(child.id(), GIB / 2)]);
    assert_eq!(told, [about(NOT_ATTACHED, "a")]);
    // A claim by a process is not held against a lasting grant.
    bench.snapshot.tenants[0].is_transient = false;
    let told = bench.told(LOOKS, &[(child.id(), GIB / 2)]);
    assert_eq!(told.last().unwrap(), &(UNREGISTERED, None));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn whom_the_kernel_named_comes_before_whom_a_slot_names() {
    let (mut a, mut b) = (tenant("a", GIB, 0), tenant("b", GIB, 0));
    a.processes.push(process(4_000_001, false));
    b.processes.push(process(4_000_001, true));
    for tenants in [vec![a.clone(), b.clone()], vec![b, a]] {
        let mut bench = Bench::new(tenants);
        bench.audit.attribution.refresh(&bench.snapshot);
        assert_eq!(
            bench.audit.attribution.owner_of(4_000_001, &bench.snapshot),
            Owner::Attached("b".to_owned())
        );
    }
}

#[test]
fn damaged_files_and_refusals_are_told() {
    let mut bench = Bench::new(vec![tenant("a", GIB, 0)]);
    bench.snapshot.tenants[0].devices[0].denied = 7;
    assert_eq!(bench.told(1, &[]), [], "from before the manager");
    bench.snapshot.tenants[0].devices[0].denied = 8;
    assert_eq!(bench.told(2, &[]), [about(MEMORY_DENIED, "a")]);
    bench.snapshot.tenants[0].problem = Some("usage is too short".to_owned());
    let told = bench.told(2, &[]);
    assert_eq!(told.last().unwrap(), &about(TAMPERED, "a"));
    assert_eq!((bench.count(MEMORY_DENIED), bench.count(TAMPERED)), (1, 1));
}

#[test]
fn a_refusal_names_the_size_that_was_asked_for_and_what_its_reader_can_do() {
    let mut bench = Bench::new(vec![tenant("pod-1", GIB, GIB / 2), tenant("run", GIB, GIB / 2)]);
    bench.told(1, &[]);
    for tenant in &mut bench.snapshot.tenants {
        tenant.devices[0].denied = 1;
        tenant.devices[0].denied_bytes = 3 * GIB;
        tenant.devices[0].denied_used_bytes = GIB / 2;
    }
    bench.told(1, &[]);
    let (events, _) = bench.audit.events.listen(0);
    let texts: Vec<String> = events.into_iter().map(|event| event.report.message).collect();
    let all = "1 refusal(s) of memory, the last of 3 GiB, when 512 MiB of 1 GiB were used; ";
    assert!(texts.iter().all(|text| text.starts_with(all)), "{texts:?}");
    assert!(texts[0].contains("annotation vcuda.io/memory") && !texts[0].contains("vcuda set"), "{texts:?}");
    assert!(texts[1].contains("vcuda set"), "{texts:?}");
}

#[test]
fn a_refusal_in_a_tenants_first_second_is_news() {
    let mut bench = Bench::new(vec![tenant("a", GIB, 0)]);
    bench.told(1, &[]);
    let mut late = tenant("b", GIB, 0);
    late.devices[0].denied = 1;
    bench.snapshot.tenants.push(late);
    assert_eq!(bench.told(2, &[]), [about(MEMORY_DENIED, "b")]);
}

#[test]
fn an_nvml_that_does_not_answer_finds_nothing() {
    let mut bench = Bench::new(vec![tenant("a", GIB, 0)]);
    let none = list(&bench.snapshot, &|_| Err("gone".to_owned()));
    for _ in 0..5 {
        bench.audit.evaluate(&bench.snapshot, &none, &|_| true, &|_| false);
    }
    assert!(bench.audit.events.listen(0).0.is_empty());
}

#[test]
fn memory_that_outlives_a_tenants_processes_is_told() {
    let mut bench = Bench::new(vec![tenant("a", GIB, GIB / 2), living("b", GIB, GIB / 2)]);
    assert_eq!(bench.told(LOOKS, &[]), [about(MEMORY_LEFT, "a")]);
    assert_eq!(bench.audit.findings.lock()["a"].len(), 1);
    bench.snapshot.tenants = vec![living("b", GIB, GIB / 2)];
    bench.told(1, &[]);
    assert!(bench.audit.findings.lock().is_empty());
}
