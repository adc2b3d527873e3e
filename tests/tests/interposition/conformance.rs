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

vcuda_tests::rows! {
    init: everywhere("init"),
    context: everywhere("context"),
    memory: everywhere("memory"),
    array: everywhere("array"),
    sparse: everywhere("sparse"),
    multicast: everywhere("multicast"),
    green: everywhere("green"),
    pool: everywhere("pool"),
    vmm: everywhere("vmm"),
    ipc: everywhere("ipc"),
    shareable: everywhere("shareable"),
    pool_share: everywhere("pool_share"),
    external: everywhere("external"),
    range: everywhere("range"),
    module: everywhere("module"),
    stream: everywhere("stream"),
    capture: everywhere("capture"),
    graph: everywhere("graph"),
    // With contexts that are small, as their memory becomes the host's.
    checkpoint: everywhere_on("context_bytes = \"16MiB\"\n", "checkpoint"),
    simulated_streams: simulated("sim_stream"),
    simulated_captures: simulated("sim_capture"),
    simulated_graphs: simulated("sim_graph"),
    simulated_graph_memory: simulated("sim_graph_memory"),
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
