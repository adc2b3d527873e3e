//! Tests of `scripts/gpu-acceptance.sh` without a GPU: its programs on each profile of the simulated driver, and its
//! verdicts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use vcuda_tests::{Door, Fixture, app, release_dir, succeeded, text, workspace};

/// Programs of `apps/hardware` that finish within a second, with short arguments. `pauses` needs a GPU that computes;
/// those of `SLOW` are slower, and run on the default profile only.
const QUICK: [(&str, &[&str]); 8] = [
    ("capture_calls", &["with-nvml"]),
    ("capture_neighbour", &[]),
    ("descriptors", &[]),
    ("exits", &["5"]),
    ("foreign", &[]),
    ("nvml_costs", &[]),
    ("nvml_memory", &[]),
    ("starts", &["10"]),
];
const SLOW: [(&str, &[&str]); 7] = [
    ("blocking", &[]),
    ("charged", &[]),
    ("costs", &[]),
    ("deaths", &[]),
    ("queue", &[]),
    ("shares", &["1", "100000"]),
    ("threads", &["0.05"]),
];

/// The figures of a program's output, in lines "NAME VALUE UNIT"; a value "-" is none.
fn figures(output: &str) -> BTreeMap<&str, Option<f64>> {
    output.lines().filter_map(figure).collect()
}

fn figure(line: &str) -> Option<(&str, Option<f64>)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, value, _unit] = words[..] else {
        return None;
    };
    match value {
        "-" => Some((name, None)),
        _ => Some((name, Some(value.parse().ok()?))),
    }
}

fn profiles() -> Vec<String> {
    let files = fs::read_dir(workspace().join("simulator/profiles")).unwrap();
    let mut names: Vec<String> = files
        .filter_map(|file| {
            let name = file.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".toml").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(names.len() >= 6, "{names:?}");
    names
}

/// Checks a program's exit status: 77 means that this driver cannot answer; others than 0 are failures.
fn answers(output: &Output, what: &str) {
    let words = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(77) {
        assert!(words.starts_with("skip: "), "{what}: {}", text(output));
        return;
    }
    assert!(output.status.success(), "{what}: {}", text(output));
    assert!(!figures(&words).is_empty(), "{what}: no figures in {words}");
}

/// Runs these programs on a machine with this configuration.
fn all_answer(machine: &str, programs: &[(&str, &[&str])]) {
    let fixture = Fixture::with_config(machine);
    for (name, arguments) in programs {
        let program = app(&format!("hardware/{name}"), Door::Dlsym);
        let output = fixture.bare(&program).args(*arguments).output().unwrap();
        answers(&output, &format!("{name} on {machine:?}"));
    }
}

#[test]
fn its_programs_answer_on_each_profile() {
    for profile in profiles() {
        all_answer(&format!("profile = \"{profile}\"\n"), &QUICK);
    }
}

#[test]
fn its_slower_programs_answer() {
    // All at once, each on its own machine, as each mostly waits.
    std::thread::scope(|scope| {
        for program in &SLOW {
            scope.spawn(|| all_answer("", std::slice::from_ref(program)));
        }
    });
}

/// Answers of an H200 to `hardware/checkpoint`: the name's first parts, the last part, and the value of each.
const CHECKPOINTS: [(&str, &str, f64); 27] = [
    ("plain busy managed", "state_before", 0.0),
    ("plain busy no_context managed", "state_locked", 1.0),
    ("plain busy no_context", "state_checkpointed", 2.0),
    ("plain busy no_context", "state_restored", 1.0),
    ("plain busy no_context managed", "state_after", 0.0),
    ("plain busy locked managed", "intact", 1.0),
    ("plain busy", "listed_checkpointed", -1.0),
    ("plain busy", "gpu_checkpointed", 0.0),
    ("busy", "lock_in_100ms", 600.0),
    ("busy", "state_after_late_lock", 0.0),
    ("managed", "checkpoint", 801.0),
    ("managed", "unlock", 0.0),
    ("without_room", "restore_full", 2.0),
    ("without_room", "state_after_full", 2.0),
    ("without_room", "restore_again", 304.0),
    ("without_room", "unlock", 401.0),
    ("without_room", "done", 0.0),
    (
        "locked_init locked_ctx_create locked_stream_create locked_event_create locked_mem_alloc",
        "waited",
        1.0,
    ),
    ("locked_mem_alloc_host locked_memcpy_to_host locked_launch locked_event_record", "waited", 1.0),
    (
        "locked_device_get_count locked_device_total_mem locked_ctx_set_current locked_ctx_synchronize",
        "waited",
        0.0,
    ),
    ("locked_mem_get_info locked_stream_query locked_event_elapsed locked_exchange_mode", "waited", 0.0),
    ("away_init_init away_ctx_create_ctx_create away_mem_alloc_mem_alloc away_launch_launch", "waited", 1.0),
    ("away_device_get_count_device_get_count away_ctx_get_current_ctx_get_current", "waited", 0.0),
    ("away_mem_get_info_mem_get_info", "code", 304.0),
    ("away_stream_query away_stream_synchronize away_event_query", "ended_by_signal", 11.0),
    ("away_event_elapsed away_ctx_synchronize", "ended_by_signal", 11.0),
    ("away_ctx_set_current away_event_record away_mem_get_info", "intact", 1.0),
];

/// docs/evidence.md, "Checkpoints of a process".
#[test]
fn checkpoints_are_those_of_the_gpu() {
    // A second process that fills the GPU by blocks of 64 MiB leaves less than the first one needs.
    let machine = "context_bytes = \"8MiB\"\n[[gpus]]\nmemory_bytes = \"1033MiB\"\n";
    let fixture = Fixture::with_config(machine);
    let mut command = fixture.bare(app("hardware/checkpoint", Door::Dlsym));
    let words = succeeded(&command.arg("8").output().unwrap());
    let found = figures(&words);
    for (firsts, last, expected) in CHECKPOINTS {
        for first in firsts.split(' ') {
            let name = format!("{first}_{last}");
            assert_eq!(found.get(&*name), Some(&Some(expected)), "{name} in {words}");
        }
    }
    let figure = |name: &str| found[name].unwrap();
    let moved = figure("plain_resident_checkpointed") - figure("plain_resident_before");
    // The context and the data.
    assert!(moved >= f64::from(16 << 20), "{words}");
}

#[test]
fn checkpoints_take_the_profiles_time_and_some_drivers_have_none() {
    let program = app("hardware/checkpoint", Door::Dlsym);
    let slow = "context_bytes = \"8MiB\"\n[driver]\ncheckpoint_fixed_ns = 50_000_000\n\
                checkpoint_bytes_per_us = 80\nrestore_bytes_per_us = 160\n";
    let fixture = Fixture::with_config(slow);
    let words = succeeded(&fixture.bare(&program).args(["8", "plain"]).output().unwrap());
    let found = figures(&words);
    // 16 MiB.
    assert!(found["plain_checkpoint_took"] > Some(250.0), "{words}");
    assert!(found["plain_restore_took"] > Some(150.0), "{words}");
    for profile in ["a100-535-container", "t4-470", "wsl2", "mps"] {
        let fixture = Fixture::with_config(&format!("profile = \"{profile}\"\n"));
        let output = fixture.bare(&program).args(["8", "plain"]).output().unwrap();
        assert_eq!(output.status.code(), Some(77), "{profile}: {}", text(&output));
    }
}

/// The programs report the facts of a profile as figures.
#[test]
fn its_programs_see_what_a_profile_says() {
    let ask = |machine: &str, name: &str, figure: &str| {
        let fixture = Fixture::with_config(machine);
        let output = fixture.bare(app(&format!("hardware/{name}"), Door::Dlsym)).output().unwrap();
        let words = succeeded(&output);
        *figures(&words).get(figure).unwrap_or_else(|| panic!("no {figure} in {words}"))
    };
    let unit = |bytes| format!("[driver]\nallocation_unit_bytes = \"{bytes}\"\n");
    let allocated = "alloc_2M_1_times_64_gpu";
    assert_eq!(ask(&unit("2MiB"), "nvml_memory", allocated), Some(64.0 * f64::from(4 << 20)));
    let once = |is_so| format!("[driver]\ngreen_current_once = {is_so}\n");
    let second = "green_current_in_second_thread";
    assert_eq!(ask(&once(true), "foreign", second), Some(201.0));
    assert_eq!(ask(&once(false), "foreign", second), Some(0.0));
    let harmful = |calls| format!("[driver]\ncapture_invalidating = [{calls}]\n");
    let ended = "pool_attribute_cG_tG_end";
    assert_eq!(ask(&harmful("\"cuMemPoolGetAttribute\""), "capture_calls", ended), Some(901.0));
    assert_eq!(ask(&harmful(""), "capture_calls", ended), Some(0.0));
    let managed = |counts| format!("[driver]\nnvml_counts_managed = {counts}\n");
    let touched = "managed_256M_on_gpu_own";
    assert_eq!(ask(&managed(true), "nvml_memory", touched), Some(f64::from(256 << 20)));
    assert_eq!(ask(&managed(false), "nvml_memory", touched), Some(0.0));
}

#[test]
fn its_plan_names_what_is_there() {
    let scripts = workspace().join("scripts/gpu-acceptance");
    let plan = fs::read_to_string(scripts.join("plan.txt")).unwrap();
    let rows: Vec<&str> = plan.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(rows.len() >= 12, "{plan}");
    for row in rows {
        let fields: Vec<&str> = row.split('|').map(str::trim).collect();
        let [check, seconds, _seen, paths, _question] = fields[..] else { panic!("{row}") };
        assert!(seconds.parse::<u32>().unwrap() <= 540, "{row}");
        assert!(paths.split(' ').all(|path| workspace().join(path).exists()), "{row}");
        let whole = format!("stage_{check}");
        let (stage, function) = check.split_once('/').unwrap_or((check, &whole));
        let script = format!("dir=. simulated= ; . ./{stage}.sh && declare -F {function}");
        let mut bash = Command::new("bash");
        succeeded(&bash.args(["-c", &script]).current_dir(&scripts).output().unwrap());
    }
}

/// An unpacked archive with this stage only.
fn unpacked(stage: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let scripts = folder.path().join("gpu-acceptance");
    fs::create_dir(&scripts).unwrap();
    let ours = workspace().join("scripts/gpu-acceptance");
    for name in ["report.sh", "limit.py"] {
        fs::copy(ours.join(name), scripts.join(name)).unwrap();
    }
    fs::write(scripts.join("driver.sh"), format!("stage_driver() {{\n{stage}\n}}\n")).unwrap();
    symlink(release_dir().join("vcuda"), folder.path().join("vcuda")).unwrap();
    folder
}

/// The script's output about this stage, on the simulated GPU; the archive is in the folder.
fn verdict(folder: &Path, mode: &str) -> Output {
    let fixture = Fixture::new();
    let mut command = Command::new(workspace().join("scripts/gpu-acceptance.sh"));
    fixture.environment(&mut command);
    let arguments = [mode, "--only", "driver"];
    command.args(arguments).arg(folder).env("OUT", folder).output().unwrap()
}

#[test]
fn its_status_tells_differing_from_failing_without_the_shim() {
    for (stage, status, word) in [
        ("both same 20 '--memory 1GiB' echo hello", 0, "| same "),
        ("measure asked 20 echo question 42 us", 0, "| measured "),
        ("both other 20 '--memory 1GiB' bash -c '[ -z \"$LD_PRELOAD\" ]'", 1, "| differs "),
        ("both printed 20 '--memory 1GiB' bash -c 'echo ${LD_PRELOAD:+as a tenant}'", 1, "| differs "),
        ("measure far 20 echo far 9 us; expect far.bare far 1 2", 1, "| differs "),
        ("measure near 20 echo near 1.5 us; expect near.bare near 1 2", 0, "| same "),
        ("both broken 20 '--memory 1GiB' false", 3, "| bare-failed "),
        ("measure slow 1 sleep 20", 3, "| not-measured "),
        ("measure asked 20 echo a 1 us; expect asked.bare nothing 1 2", 3, "| not-measured "),
        ("measure lacking 20 bash -c 'echo skip: no such tool; exit 77'", 3, "| skipped "),
    ] {
        let folder = unpacked(stage);
        let output = verdict(folder.path(), "sim");
        assert_eq!(output.status.code(), Some(status), "{stage}: {}", text(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains(word), "{stage}: {}", text(&output));
        let archive = folder.path().join("gpu-acceptance-driver.tar.gz");
        assert!(fs::metadata(&archive).unwrap().len() < 16 << 20);
        let listed = Command::new("tar").arg("-tzf").arg(&archive).output().unwrap();
        assert!(succeeded(&listed).contains("table.md"), "{}", text(&listed));
    }
}

#[test]
fn a_machine_without_a_gpu_cannot_be_measured() {
    let folder = unpacked("both same 20 '--memory 1GiB' true");
    // With a real GPU this is an ordinary run.
    let output = verdict(folder.path(), "run");
    let is_there = String::from_utf8_lossy(&output.stdout).contains("| same ");
    assert_eq!(output.status.code(), Some(if is_there { 0 } else { 3 }), "{}", text(&output));
}
