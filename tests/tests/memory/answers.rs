//! Consistency of memory figures: CUDA, all versions of NVML's functions, and `vcuda smi` agree on the amount and on the
//! processes that use it, and none shows another tenant (I9).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::{Door, Fixture, GIB, MIB, Running, Tenant, app, eventually, release_dir, skip, succeeded};

const MACHINE: &str =
    "accounting = true\n[[gpus]]\nmemory_bytes = \"16GiB\"\n[[gpus]]\nmemory_bytes = \"8GiB\"\n";

/// A process of `apps/answers.c`.
struct Asker {
    running: Running,
    /// PID as the process sees it.
    pid: u64,
}

impl Asker {
    fn start(command: &mut Command) -> Self {
        let mut running = Running::start(command.stdin(Stdio::piped()));
        let pid = running.wait_for("ready ")[6..].parse().unwrap();
        Asker { running, pid }
    }

    fn of(tenant: &Tenant<'_>, bytes: u64) -> Self {
        Self::start(tenant.command(app("answers", Door::Dlsym)).arg(bytes.to_string()))
    }

    fn say(&mut self, words: &str) {
        writeln!(self.running.0.stdin.as_mut().unwrap(), "{words}").unwrap();
    }

    /// All figures that it sees now.
    fn told(&mut self) -> Value {
        self.say("tell");
        serde_json::from_str(&self.running.wait_for("told ")[5..]).unwrap()
    }

    /// Keeps the GPU busy for some time.
    fn works(&mut self, ms: u32) {
        self.say(&format!("work {ms}"));
        self.running.wait_for("worked");
    }

    /// Ends it, and checks the status, which includes its own checks.
    fn ends(mut self) {
        drop(self.running.0.stdin.take());
        self.running.wait_for("passed answers");
        assert!(self.running.finish().success());
    }
}

/// Memory of each process in a list of NVML (bytes).
fn by_pid(list: &Value) -> BTreeMap<u64, u64> {
    let list = list.as_object().unwrap().iter();
    list.map(|(pid, figure)| (pid.parse().unwrap(), figure.as_u64().unwrap())).collect()
}

/// Memory of each process in `vcuda smi` (bytes).
fn by_smi(tenant: &Value) -> BTreeMap<u64, u64> {
    let list = tenant["processes"].as_array().unwrap().iter();
    list.map(|one| (one["pid"].as_u64().unwrap(), one["memory_used_bytes"].as_u64().unwrap())).collect()
}

/// Quota of a tenant on each of its GPUs.
const QUOTA: [&str; 2] = ["--memory", "4GiB"];

/// NVML on the host, in a process of no tenant with a context of its own.
fn host(fixture: &Fixture, gpu: &str) -> Value {
    let mut asker = Asker::start(fixture.bare(app("answers", Door::Dlsym)).arg("0"));
    let told = asker.told();
    asker.ends();
    told["nvml"][gpu].clone()
}

/// Output of `vcuda smi` in a process of the tenant.
fn smi_inside(tenant: &Tenant<'_>) -> Value {
    let mut smi = tenant.command(release_dir().join("vcuda"));
    let said = succeeded(&smi.args(["smi", "--json"]).output().unwrap());
    serde_json::from_str(&said).unwrap()
}

/// Checks that CUDA and NVML agree within a process. Returns the memory of each process (bytes).
fn agree(told: &Value, gpu: &str, limit: u64) -> BTreeMap<u64, u64> {
    let (nvml, info) = (&told["nvml"][gpu], &told["info"]);
    let memory = &nvml["memory"];
    assert_eq!(memory["total"], limit, "{told}");
    assert_eq!(told["cuda"][gpu]["total"], limit, "{told}");
    assert_eq!(info["total"], limit, "{told}");
    assert_eq!(memory["free"], info["free"], "{told}");
    let figure = |what: &str| memory[what].as_u64().unwrap();
    assert_eq!(figure("used") + figure("free"), limit, "{told}");
    let window = &nvml["window"];
    assert!(window["total"].as_u64().unwrap() <= limit && window["used"].as_u64().unwrap() <= figure("used"));
    let processes = by_pid(&nvml["compute"]);
    assert_eq!(processes.values().sum::<u64>(), figure("used"), "{told}");
    assert_eq!(by_pid(&nvml["graphics"]).len() + by_pid(&nvml["mps"]).len(), 0);
    let accounted = by_pid(&nvml["accounting"]);
    assert!(accounted.keys().eq(processes.keys()), "{told}");
    for (pid, peak) in accounted {
        assert!((processes[&pid]..=limit).contains(&peak), "{told}");
    }
    processes
}

/// Attributes about memory are the GPU's; a quota changes none.
fn attributes_are_the_gpus(fixture: &Fixture, gpus: &[String], told: &Value) {
    let mut bare = Asker::start(&mut fixture.bare(app("answers", Door::Dlsym)));
    let whole_gpu = bare.told();
    bare.ends();
    for gpu in gpus {
        let gpu = gpu.as_str();
        assert_eq!(whole_gpu["cuda"][gpu]["attributes"], told["cuda"][gpu]["attributes"]);
        assert_eq!(whole_gpu["nvml"][gpu]["index"], told["nvml"][gpu]["index"]);
    }
    assert!(whole_gpu["cuda"].as_object().unwrap().keys().eq(told["cuda"].as_object().unwrap().keys()));
}

#[test]
fn every_question_of_every_process_has_one_answer() {
    let fixture = Fixture::with_config(MACHINE);
    let (one, other) = (fixture.keep("one", &QUOTA), fixture.keep("other", &["--memory", "3GiB"]));
    let mut askers = [500, 300, 0].map(|mib| Asker::of(&one, mib * MIB));
    let mut foreign = Asker::of(&other, GIB);
    let gpus = [fixture.uuid(0), fixture.uuid(1)];
    let gpu = gpus[0].as_str();

    let smi = one.smi(0);
    let mine = by_smi(&smi);
    let pids: BTreeSet<u64> = askers.iter().map(|asker| asker.pid).collect();
    assert!(mine.keys().eq(&pids), "{smi}");
    assert_eq!(smi["memory_limit_bytes"], 4 * GIB);
    let first = askers[0].told();
    for asker in &mut askers {
        let told = asker.told();
        assert_eq!(told["pid"], asker.pid);
        assert_eq!(agree(&told, gpu, 4 * GIB), mine);
        assert_eq!(told["nvml"][gpu]["memory"]["used"], smi["memory_used_bytes"]);
        // Figures that do not depend on time are the same for all.
        assert_eq!(told["cuda"], first["cuda"]);
        assert_eq!(told["nvml"][gpu]["accounting"], first["nvml"][gpu]["accounting"]);
        // The pool is part of the memory of this process.
        let pool = |what: &str| told["pool"][what].as_u64().unwrap();
        assert!(pool("used") <= pool("reserved") && pool("reserved") < mine[&asker.pid]);
        // The second GPU: as large as the quota, and unused.
        let idle = &told["nvml"][gpus[1].as_str()];
        assert_eq!(idle["memory"]["total"], 4 * GIB);
        assert_eq!(told["cuda"][gpus[1].as_str()]["total"], 4 * GIB);
        assert_eq!(idle["memory"]["used"], 0);
        assert!(by_pid(&idle["compute"]).is_empty());
    }
    attributes_are_the_gpus(&fixture, &gpus, &first);
    // The other tenant sees only its own figures.
    let told = foreign.told();
    let theirs = agree(&told, gpu, 3 * GIB);
    assert_eq!(theirs, by_smi(&other.smi(0)));
    assert!(theirs.keys().eq([&foreign.pid]), "{told}");
    // The host sees all processes, each with its tenant's figure.
    let all = by_pid(&host(&fixture, gpu)["compute"]);
    for (pid, used) in mine.iter().chain(&theirs) {
        assert!(all[pid].abs_diff(*used) <= NVML_BLOCK, "{all:?} against {mine:?}, {theirs:?}");
    }
    // Inside, `vcuda smi` shows this tenant as the whole machine.
    let inside = smi_inside(&one);
    let view = &inside["gpus"][0];
    assert_eq!(view["uuid"], gpu);
    assert_eq!(view["memory_total_bytes"], 4 * GIB);
    assert_eq!(view["memory_used_bytes"], first["nvml"][gpu]["memory"]["used"]);
    assert_eq!(view["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(by_smi(&view["tenants"][0]), mine);
    askers.into_iter().for_each(Asker::ends);
    foreign.ends();
}

/// Unit of NVML's figures (bytes); smaller changes are not shown at once.
const NVML_BLOCK: u64 = 4 * MIB;

/// A tenant with the whole GPU does not see others either.
#[test]
fn a_tenant_with_the_whole_gpu_sees_its_own_processes() {
    let fixture = Fixture::with_config(MACHINE);
    let (whole, other) = (fixture.keep("whole", &[]), fixture.keep("other", &QUOTA));
    let mut asker = Asker::of(&whole, 100 * MIB);
    let mut foreign = Asker::of(&other, MIB);
    foreign.works(300);
    let gpu = fixture.uuid(0);
    let told = asker.told();
    let nvml = &told["nvml"][gpu.as_str()];
    assert_eq!(by_pid(&nvml["compute"]), by_smi(&whole.smi(0)));
    assert!(by_pid(&nvml["compute"]).keys().eq([&asker.pid]), "{told}");
    assert!(by_pid(&nvml["accounting"]).keys().eq([&asker.pid]), "{told}");
    assert_eq!(nvml["rates"], 0, "{told}");
    // Its memory is the GPU's, and others use a part of it.
    assert_eq!(nvml["memory"]["total"], 16 * GIB);
    assert_eq!(told["info"]["total"], 16 * GIB);
    asker.ends();
    foreign.ends();
}

/// A tenant sees its own use of GPU time only.
#[test]
fn utilization_is_the_tenants_own() {
    for cap in [None, Some("60")] {
        let fixture = Fixture::with_config(MACHINE);
        let quota = cap.map_or(QUOTA.to_vec(), |cap| [&QUOTA[..], &["--cores", cap]].concat());
        let (busy, idle) = (fixture.keep("busy", &quota), fixture.keep("idle", &quota));
        let (mut works, mut rests) = (Asker::of(&busy, MIB), Asker::of(&busy, MIB));
        let mut foreign = Asker::of(&idle, MIB);
        let gpu = fixture.uuid(0);
        works.works(400);
        // Another process of the tenant sees the same figure.
        for asker in [&mut works, &mut rests] {
            let pid = asker.pid;
            let told = asker.told()["nvml"][gpu.as_str()].clone();
            let busy_pids = by_pid(&told["samples"]);
            // The figures are of two moments.
            assert!(busy_pids.keys().eq(by_pid(&told["samples2"]).keys()), "{pid}: {told}");
            assert_eq!(busy_pids.len(), 1, "{told}");
            assert!(
                told["rates"].as_u64().unwrap() > 0 && told["most"].as_u64().unwrap() > 0,
                "{cap:?} {pid}: {told}"
            );
        }
        assert!(by_pid(&works.told()["nvml"][gpu.as_str()]["samples"]).contains_key(&works.pid));
        let told = foreign.told()["nvml"][gpu.as_str()].clone();
        assert_eq!((&told["rates"], &told["most"]), (&0.into(), &0.into()), "{told}");
        assert!(by_pid(&told["samples"]).is_empty() && by_pid(&told["samples2"]).is_empty(), "{told}");
        for asker in [works, rests, foreign] {
            asker.ends();
        }
    }
}

/// In a PID namespace, processes have its PIDs, and the sums include the tenant's processes outside.
#[test]
fn a_pid_namespace_has_its_own_numbers() {
    let fixture = Fixture::with_config(MACHINE);
    let tenant = fixture.keep("spaces", &QUOTA);
    let mut outside = Asker::of(&tenant, 200 * MIB);
    let apart = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    if !tenant.command("unshare").args(apart).arg("true").output().is_ok_and(|made| made.status.success()) {
        skip("answers: unshare --pid does not work here");
        return;
    }
    // The shell is the namespace's first process, its child the second.
    let [hold, asks] = ["hold", "answers"].map(|name| app(name, Door::Dlsym));
    let script = format!("{} 104857600 >/dev/null </dev/null & exec {} 0", hold.display(), asks.display());
    let mut inside = Asker::start(tenant.command("unshare").args(apart).args(["sh", "-c", &script]));
    assert_eq!(inside.pid, 1);
    let gpu = fixture.uuid(0);
    let listed = |asker: &mut Asker| by_pid(&asker.told()["nvml"][gpu.as_str()]["compute"]);
    eventually("both are listed", Duration::from_secs(5), || listed(&mut inside).len() == 2);
    let pids: Vec<u64> = listed(&mut inside).into_keys().collect();
    assert_eq!(pids[0], 1);
    assert!(pids[1] < 10, "{pids:?}");
    assert!(listed(&mut outside).keys().eq([&outside.pid]));
    // One quota, so one sum.
    eventually("what the one counts the other counts", Duration::from_secs(2), || {
        let sums = [&mut inside, &mut outside].map(|asker| {
            let told = asker.told();
            assert_eq!(told["nvml"][gpu.as_str()]["memory"]["free"], told["info"]["free"]);
            told["info"]["free"].as_u64().unwrap()
        });
        sums[0] == sums[1] && tenant.used_bytes() == 4 * GIB - sums[0]
    });
    inside.ends();
    outside.ends();
}

/// Also if no process of the tenant asks for anything meanwhile, and nothing but the list.
#[test]
fn a_killed_process_leaves_the_list_of_processes_within_a_second() {
    let fixture = Fixture::new();
    let tenant = fixture.keep("dies", &["--memory", "4GiB"]);
    let mut holds = Running::start(tenant.command(app("hold", Door::Dlsym)).arg((300 * MIB).to_string()));
    holds.wait_for("holding");
    let mut lists = tenant.command(app("nvml_list", Door::Dlsym));
    let mut lists = Running::start(lists.stdin(Stdio::piped()));
    let mut listed = || {
        writeln!(lists.0.stdin.as_mut().unwrap()).unwrap();
        lists.wait_for("listed")
    };
    let pid = format!(" {}:", holds.0.id());
    assert!(listed().contains(&pid));
    holds.kill();
    std::thread::sleep(Duration::from_secs(1));
    let after = listed();
    assert!(!after.contains(&pid), "{after}");
}
