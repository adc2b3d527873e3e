//! A user's own manager that is killed or stopped, with and without its keeper: real processes, in real time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use vcuda_tests::{Door, Fixture, Running, app, soon, text};

/// Duration of a measured share: far longer than what swings on a busy machine.
const SPAN: Duration = Duration::from_secs(4);
/// Tenants go by themselves one second after the last beat (docs/policies.md).
const WITHOUT_MANAGER: Duration = Duration::from_millis(1500);
const TENANT: &str = "burst";
/// More than its 30 %, which it would have by itself: it borrows (percent). How much more, a busy machine decides.
const BORROWS: f64 = 35.0;

/// A tenant that keeps the GPU busy with kernels of 1 ms, and borrows.
struct Borrower {
    fixture: Fixture,
    running: Running,
}

impl Borrower {
    fn new() -> Self {
        let fixture = Fixture::new();
        let quota = ["--name", TENANT, "--cores", "30", "--cores-max", "90", "--policy", "burst"];
        let program = app("saturate", Door::Dlsym);
        let mut running = Running::start(fixture.tenant(&quota, &program).args(["600", "1000000"]));
        running.wait_for("started");
        Borrower { fixture, running }
    }

    /// Mean share of GPU time from now on (percent).
    fn share(&self) -> f64 {
        let service_ns = || self.fixture.service_ns(self.running.0.id());
        let (before, start) = (service_ns(), SystemTime::now());
        std::thread::sleep(SPAN);
        (service_ns() - before) as f64 / start.elapsed().unwrap().as_nanos() as f64 * 100.0
    }

    /// Time of the arbiter's last step, from the tenant's `limits`.
    fn beat(&self) -> Vec<u8> {
        let limits = self.fixture.runtime().join("vcuda/containers").join(TENANT).join("limits");
        fs::read(limits).unwrap()[176..184].to_vec()
    }

    /// PIDs of its keeper and its manager.
    fn processes(&self) -> [Option<u32>; 2] {
        let root = self.fixture.runtime().join("vcuda").display().to_string();
        ["--own=keep", "--own=serve"].map(|stage| {
            let is_it = |process: &Path| {
                let line = fs::read(process.join("cmdline")).unwrap_or_default();
                [stage, &root]
                    .iter()
                    .all(|word| line.split(|byte| *byte == 0).any(|one| one == word.as_bytes()))
            };
            let all = fs::read_dir("/proc").unwrap().flatten().filter(|entry| is_it(&entry.path()));
            let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            pids.next()
        })
    }

    /// Waits until another manager than `before` divides GPU time.
    fn next_manager(&self, before: Option<u32>) -> u32 {
        let mut found = None;
        soon("a manager runs", || {
            found = self.processes()[1].filter(|pid| Some(*pid) != before);
            found.is_some()
        });
        let beat = self.beat();
        soon("it divides GPU time", || self.beat() != beat);
        found.unwrap()
    }
}

fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: kill takes no pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

#[test]
fn a_killed_or_stopped_manager_is_replaced() {
    let tenant = Borrower::new();
    let first = tenant.next_manager(None);
    signal(first, libc::SIGKILL);
    let second = tenant.next_manager(Some(first));
    signal(second, libc::SIGSTOP);
    // It is ended, not waited for.
    let third = tenant.next_manager(Some(second));
    let share = tenant.share();
    assert!(share > BORROWS, "{share:.1} % with a third manager");
    // Without any a promise is kept and nothing is borrowed; the next command starts another one, which knows the tenant.
    let keeper = tenant.processes()[0].unwrap();
    signal(keeper, libc::SIGKILL);
    signal(third, libc::SIGKILL);
    std::thread::sleep(WITHOUT_MANAGER);
    let beat = tenant.beat();
    let share = tenant.share();
    assert!((15.0..32.0).contains(&share), "{share:.1} % without a manager");
    assert_eq!((tenant.processes(), tenant.beat()), ([None, None], beat), "none came");
    assert_eq!(tenant.fixture.smi()["gpus"][0]["tenants"][0]["name"], TENANT);
    tenant.fixture.stdout(["set", TENANT, "--cores-max", "95"]);
    tenant.next_manager(Some(third));
    let share = tenant.share();
    assert!(share > BORROWS, "{share:.1} % with a manager again");
}

/// Two commands that begin at once start one manager, which ends with the last of them.
#[test]
fn the_last_tenant_ends_the_manager_that_the_first_started() {
    let fixture = Fixture::new();
    let names = ["a", "b", "c", "d"];
    let start = |name: &&str| {
        let mut command = fixture.tenant(&["--name", name, "--memory", "1GiB"], app("hold", Door::Dlsym));
        Running::start(command.arg("1048576"))
    };
    let mut all: Vec<Running> = names.iter().map(start).collect();
    for running in &mut all {
        running.wait_for("holding");
    }
    let shown = fixture.smi();
    let tenants = shown["gpus"][0]["tenants"].as_array().unwrap();
    let shown: Vec<&str> = tenants.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect();
    assert_eq!(shown, names);
    let borrower = Borrower { fixture, running: all.pop().unwrap() };
    let [keeper, manager] = borrower.processes().map(Option::unwrap);
    drop(all);
    assert_eq!(borrower.processes(), [Some(keeper), Some(manager)]);
    // A command that is connected may make the next tenant.
    let mut caller = Running::start(borrower.fixture.vcuda(["events", "--follow"]).stdout(Stdio::null()));
    std::thread::sleep(Duration::from_millis(500));
    drop(borrower.running);
    let borrower = Borrower { running: Running::start(&mut Command::new("true")), ..borrower };
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(borrower.processes(), [Some(keeper), Some(manager)]);
    caller.kill();
    soon("they end", || borrower.processes() == [None, None]);
    let root = borrower.fixture.runtime().join("vcuda");
    assert!(!root.join("manager.sock").exists() && !root.join("manager.log").exists());
}

/// A user's own manager has the GPUs of the command that started it.
#[test]
fn a_run_on_another_simulated_machine_is_refused() {
    let fixture = Fixture::new();
    let mut first = Running::start(fixture.tenant(&["--name", "a"], app("hold", Door::Dlsym)).arg("1048576"));
    first.wait_for("holding");
    let mut other = fixture.tenant(&["--name", "b"], "true");
    let refused = other.env("VCUDA_SIM", fixture.home().join("other-machine")).output().unwrap();
    assert_eq!(refused.status.code(), Some(69), "{}", text(&refused));
    let said = text(&refused);
    assert!(
        said.contains("other-machine") && said.contains("set XDG_RUNTIME_DIR to another folder"),
        "{said}"
    );
    first.kill();
    soon("the manager ends, and the next has the other machine", || {
        let mut other = fixture.tenant(&["--name", "b"], "true");
        other.env("VCUDA_SIM", fixture.home().join("other-machine")).output().unwrap().status.success()
    });
}
