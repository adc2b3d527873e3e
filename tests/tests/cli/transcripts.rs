//! What the tables of `vcuda` look like at 40 to 160 columns: transcripts, which a person can read as they are, in
//! `tests/tests/cli/transcripts/`. `VCUDA_TEST_WRITE=1` writes them anew.

use std::fs;
use std::process::Command;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, MIB, Running, app, eventually, is_root, skip, succeeded, workspace};

/// Commands of the transcripts.
const COMMANDS: [&[&str]; 16] = [
    &["smi"],
    &["smi", "--uuid", "-i", "0"],
    &["smi", "-L"],
    &["smi", "-q", "-i", "0"],
    &["smi", "dmon", "-c", "1"],
    &["smi", "pmon", "-c", "1"],
    &["smi", "--query-gpu=index,name,driver_version,memory.total,memory.used,power.limit"],
    &["smi", "--query-gpu=name,memory.used", "--format=csv,noheader,nounits"],
    &["smi", "--query-tenants=name,memory.limit,memory.used,cores.limit,cores.used,policy,state,processes"],
    &["ps"],
    &["grant", "list"],
    &["grant", "show", "web"],
    &["gpu", "list"],
    &["usage"],
    &["usage", "--csv", "--by", "namespace"],
    &["version"],
];

/// A node with three grants, two programs and one program outside of vcuda. They hold memory and run nothing.
struct Node {
    fixture: Fixture,
}

impl Node {
    fn new() -> Node {
        let fixture = Fixture::with_gpus(2, "24GiB");
        fs::copy(app("hold", Door::Dlsym), fixture.home().join("hold")).unwrap();
        Node { fixture }
    }

    /// A program that holds memory, with the same command line on each machine.
    fn holding(&self, mut command: Command, bytes: u64) -> Running {
        command.current_dir(self.fixture.home());
        command.args(["./hold", &bytes.to_string()]);
        loop {
            let mut running = Running::start(&mut command);
            running.wait_for("holding");
            if !is_a_figure(&running.0.id().to_string()) {
                return running;
            }
        }
    }

    /// UUIDs of its two GPUs.
    fn uuids(&self) -> Vec<String> {
        let list = self.vcuda(&["smi", "--query-gpu=uuid", "--format=csv,noheader"], 80);
        let uuids: Vec<String> = list.lines().map(str::to_owned).collect();
        assert_eq!(uuids.len(), 2, "{list}");
        uuids
    }

    fn vcuda(&self, args: &[&str], columns: u32) -> String {
        let mut command = self.fixture.vcuda(args);
        succeeded(&command.env("COLUMNS", columns.to_string()).output().unwrap())
    }
}

/// Whether a transcript has these digits: a PID that has them could not be told from a figure.
fn is_a_figure(digits: &str) -> bool {
    let transcripts = fs::read_dir(workspace().join("tests/tests/cli/transcripts")).unwrap();
    let mut texts = transcripts.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    texts.any(|text| text.contains(digits))
}

/// The text without what differs from run to run: times, PIDs, UUIDs, versions. Each letter keeps its place.
fn masked(text: &str, pids: &[(u32, char)], uuids: &[String]) -> String {
    let is_time = |line: &str| {
        let days = ["Mon ", "Tue ", "Wed ", "Thu ", "Fri ", "Sat ", "Sun "];
        days.iter().any(|day| line.starts_with(day))
            || line.starts_with("Timestamp ")
            || line.starts_with("From 2")
    };
    // First, as a PID may be a year.
    let lines = text.lines().map(|line| if is_time(line) { "TIME" } else { line });
    let mut text: String = lines.map(|line| format!("{line}\n")).collect();
    for (pid, letter) in pids {
        let pid = pid.to_string();
        // Right-aligned, so that the width of the number does not show.
        text = text.replace(&format!("{pid:>7}"), &format!("{letter:>7}"));
        text = text.replace(&format!(" {pid}"), &format!(" {letter}"));
    }
    for (number, uuid) in uuids.iter().enumerate() {
        text = text.replace(uuid, &format!("GPU-{}", number.to_string().repeat(uuid.len() - 4)));
        // As a narrow `gpu list` cuts it.
        let digits = |count| number.to_string().repeat(count);
        let cut = format!("{}…{}", &uuid[..12], &uuid[17..]);
        text = text.replace(&cut, &format!("GPU-{}…{}", digits(8), digits(23)));
    }
    text
}

/// The tenants of the transcripts: on GPU 0 web and batch, on GPU 1 web-10 and web-9.
fn create_tenants(node: &Node) {
    for args in [
        "web --memory 4GiB --cores 30 --gpu 0",
        "batch --memory 2GiB --policy best-effort --gpu 0",
        "web-10 --memory 6GiB --cores 12.5 --policy burst --priority high --gpu 1",
        "web-9 --memory 1GiB --gpu 1",
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        node.vcuda(&[&["grant", "create"], args.as_slice()].concat(), 80);
    }
}

/// Waits until the manager, which looks at NVML every other second, tells of these processes and their memory.
fn wait_until_seen(node: &Node, pids: &[(u32, char)]) {
    let is_seen = |text: &str| pids.iter().all(|(pid, _)| text.contains(&format!(" {pid}")));
    eventually("all are seen", Duration::from_secs(30), || is_seen(&node.vcuda(&["ps"], 80)));
    let figure = ["smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    eventually("NVML's figure is known", Duration::from_secs(30), || {
        node.vcuda(&figure, 80).trim().parse::<u64>().unwrap() > 2200
    });
}

#[test]
fn each_table_is_as_wide_as_the_terminal() {
    let node = Node::new();
    let _manager = node.fixture.manager();
    create_tenants(&node);
    let granted = |name| node.fixture.vcuda(["run", "--sim", "--grant", name, "--"]);
    let web = node.holding(granted("web"), 512 * MIB);
    let batch = node.holding(granted("batch"), 100 * MIB);
    let outside = node.holding(node.fixture.vcuda(["sim", "--"]), 200 * MIB);
    let pids = [(web.0.id(), 'W'), (batch.0.id(), 'B'), (outside.0.id(), 'X')];
    wait_until_seen(&node, &pids);
    let uuids = node.uuids();
    for columns in [60, 80, 160] {
        let mut transcript = String::new();
        for args in COMMANDS {
            let text = masked(&node.vcuda(args, columns), &pids, &uuids);
            // -L, -q and CSV are for programs, and as wide as they are.
            let is_table = match args {
                ["smi"] => true,
                ["smi", ..] => args.contains(&"--uuid") || args.contains(&"dmon"),
                _ => !args.contains(&"--csv"),
            };
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(!is_table || widest <= columns as usize, "{args:?}: {widest}\n{text}");
            transcript += &format!("$ vcuda {}\n{text}\n", args.join(" "));
        }
        compare(&transcript, columns);
    }
}

/// Commands of the transcripts of a suspended tenant.
const OF_SUSPENDED: [&[&str]; 3] = [
    &["smi"],
    &["smi", "-q", "-i", "0"],
    &["smi", "--query-tenants=name,state,memory.used,memory.suspended"],
];

#[test]
fn a_suspended_tenant_says_so_at_each_width() {
    let node = Node::new();
    let _manager = node.fixture.manager();
    node.vcuda(&["grant", "create", "notebook", "--memory", "4GiB", "--suspendable", "--gpu", "0"], 80);
    let command = node.fixture.vcuda(["run", "--sim", "--grant", "notebook", "--"]);
    let program = node.holding(command, 512 * MIB);
    let uuids = node.uuids();
    node.vcuda(&["suspend", "notebook"], 80);
    let query = ["smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"];
    eventually("NVML sees that its memory is away", Duration::from_secs(30), || {
        node.vcuda(&query, 80).trim() == "0"
    });
    let pids = [(program.0.id(), 'N')];
    for columns in [40, 80, 160] {
        let mut transcript = String::new();
        for args in OF_SUSPENDED {
            let text = masked(&node.vcuda(args, columns), &pids, &uuids);
            transcript += &format!("$ vcuda {}\n{text}\n", args.join(" "));
        }
        compare_with(&transcript, &format!("suspended-{columns}"));
    }
}

/// Commands whose help is in the transcripts.
const HELP: [&[&str]; 9] = [
    &[],
    &["run"],
    &["smi"],
    &["top"],
    &["usage"],
    &["set"],
    &["grant", "create"],
    &["doctor"],
    &["support-bundle"],
];

#[test]
fn help_and_doctor_are_as_wide_as_the_terminal() {
    let node = Node::new();
    let _manager = node.fixture.manager();
    create_tenants(&node);
    let uuids = node.uuids();
    for columns in [60, 80, 160] {
        let mut transcript = String::new();
        let mut add = |args: &[&str], text: &str| {
            // A path is not broken, nor is the name of an option.
            let is_long = |line: &&str| line.chars().count() > columns as usize && line.trim().contains(' ');
            let long: Vec<&str> = text.lines().filter(is_long).collect();
            assert!(long.is_empty(), "{args:?} at {columns}: {long:#?}");
            transcript += &format!("$ vcuda {}\n{text}\n", args.join(" "));
        };
        for args in HELP {
            let args = [args, &["--help"]].concat();
            add(&args, &node.vcuda(&args, columns));
        }
        let mut doctor = node.fixture.vcuda(["doctor"]);
        let output = doctor.env("COLUMNS", columns.to_string()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        add(&["doctor"], &masked(&of_the_node(&text), &[], &uuids));
        compare_with(&transcript, &format!("help-{columns}"));
    }
}

/// The findings of `doctor` that are the same on each machine: those without paths.
fn of_the_node(text: &str) -> String {
    let mut is_kept = false;
    let mut kept = String::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            let link = line.split_once(' ').unwrap().1.trim_start();
            is_kept = ["tenant ", "GPU", "quotas"].iter().any(|kind| link.starts_with(kind));
        }
        if is_kept {
            kept += &format!("{line}\n");
        }
    }
    kept
}

fn compare(transcript: &str, columns: u32) {
    compare_with(transcript, &columns.to_string());
}

fn compare_with(transcript: &str, name: &str) {
    let place = workspace().join(format!("tests/tests/cli/transcripts/{name}.txt"));
    if std::env::var_os("VCUDA_TEST_WRITE").is_some() {
        fs::write(place, transcript).unwrap();
        return;
    }
    if !is_root() {
        skip("transcripts: they name the user root");
        return;
    }
    let expected = fs::read_to_string(place).unwrap_or_default();
    let differences: Vec<(&str, &str)> =
        expected.lines().zip(transcript.lines()).filter(|(one, other)| one != other).collect();
    assert!(
        expected == transcript,
        "{name}: {differences:#?}\nVCUDA_TEST_WRITE=1 writes the transcript anew; all of it is now:\n{transcript}"
    );
}
