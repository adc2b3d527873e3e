//! Documented behaviour of the driver, through every door, without shim and as an unlimited or a limited tenant: the shim
//! must not change it (I1).

use vcuda_tests::{Door, Fixture, app, succeeded};

fn everywhere(name: &str) {
    everywhere_on("", name);
}

/// On a machine with this configuration.
fn everywhere_on(machine: &str, name: &str) {
    for door in Door::ALL {
        let program = app(&format!("conformance/{name}"), door);
        let fixture = Fixture::with_config(machine);
        succeeded(&fixture.bare(&program).output().unwrap());
        succeeded(&fixture.tenant(&[], &program).output().unwrap());
        succeeded(&fixture.tenant(&["--memory", "20GiB", "--cores", "90"], &program).output().unwrap());
    }
}

#[test]
fn init() {
    everywhere("init");
}
#[test]
fn context() {
    everywhere("context");
}
#[test]
fn memory() {
    everywhere("memory");
}
#[test]
fn array() {
    everywhere("array");
}
#[test]
fn sparse() {
    everywhere("sparse");
}
#[test]
fn multicast() {
    everywhere("multicast");
}
#[test]
fn green() {
    everywhere("green");
}
#[test]
fn pool() {
    everywhere("pool");
}
#[test]
fn vmm() {
    everywhere("vmm");
}
#[test]
fn ipc() {
    everywhere("ipc");
}
#[test]
fn shareable() {
    everywhere("shareable");
}
#[test]
fn pool_share() {
    everywhere("pool_share");
}
#[test]
fn external() {
    everywhere("external");
}
#[test]
fn range() {
    everywhere("range");
}
#[test]
fn module() {
    everywhere("module");
}
#[test]
fn stream() {
    everywhere("stream");
}
#[test]
fn capture() {
    everywhere("capture");
}
#[test]
fn graph() {
    everywhere("graph");
}
/// With contexts that are small, as their memory becomes the host's.
#[test]
fn checkpoint() {
    everywhere_on("context_bytes = \"16MiB\"\n", "checkpoint");
}
#[test]
fn fork() {
    let program = app("fork", Door::Dlsym);
    let fixture = Fixture::new();
    succeeded(&fixture.bare(&program).output().unwrap());
    succeeded(&fixture.tenant(&["--memory", "4GiB"], &program).output().unwrap());
}

/// Runs a program about the simulator's own behaviour, without shim and as a tenant without limits.
fn simulated(name: &str) {
    let program = app(name, Door::Dlsym);
    let fixture = Fixture::new();
    succeeded(&fixture.bare(&program).output().unwrap());
    succeeded(&fixture.tenant(&[], &program).output().unwrap());
}

#[test]
fn simulated_streams() {
    simulated("sim_stream");
}
#[test]
fn simulated_captures() {
    simulated("sim_capture");
}
#[test]
fn simulated_graphs() {
    simulated("sim_graph");
}
#[test]
fn simulated_graph_memory() {
    simulated("sim_graph_memory");
}
/// Without shim only: as a tenant the figures are the tenant's, in NVML's granularity.
#[test]
fn simulated_limits() {
    let fixture = Fixture::new();
    succeeded(&fixture.bare(app("sim_limits", Door::Dlsym)).output().unwrap());
}
#[test]
fn simulated_faults() {
    let program = app("sim_faults", Door::Dlsym);
    let fixture = Fixture::with_config(
        "[faults.functions]\n\
         cuMemAlloc_v2 = { nth = 2 }\n\
         cuArrayCreate_v2 = { every = 3, code = 719 }\n\
         cuMemRelease = { nth = 1, code = 401 }\n",
    );
    succeeded(&fixture.bare(&program).output().unwrap());
    succeeded(&fixture.tenant(&[], &program).output().unwrap());
    let unknown = Fixture::with_config("[faults.functions]\ncuMemAllocate = { nth = 1 }\n");
    let refused = unknown.bare(&program).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cuMemAllocate"), "the name is told");
}
