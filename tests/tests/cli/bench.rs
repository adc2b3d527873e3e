//! `vcuda bench` on the simulated GPU: its tables, chart and refusals, and that it leaves no process behind. Shares are
//! checked loosely, as exact figures are the command's purpose.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vcuda_tests::{Fixture, Running, eventually, skip, succeeded, text};

fn bench(fixture: &Fixture, options: &[&str]) -> Value {
    let output = fixture.vcuda(["bench", "--sim", "--json"]).args(options).output().unwrap();
    serde_json::from_str(&succeeded(&output)).unwrap()
}

/// All tenants of all rows.
fn tenants(report: &Value) -> Vec<&Value> {
    let rows = report["shares"].as_array().unwrap();
    rows.iter().flat_map(|row| row["tenants"].as_array().unwrap()).collect()
}

fn figure(of: &Value, key: &str) -> f64 {
    of[key].as_f64().unwrap_or_else(|| panic!("no {key} in {of}"))
}

/// Checks that the rows are those of `--quick`, and that each tenant's windows agree with its share.
fn each_tenant_keeps_to_its_cap(report: &Value) {
    let caps: Vec<f64> = tenants(report).iter().map(|t| figure(t, "cap_percent")).collect();
    assert_eq!(caps, [30.0, 50.0, 30.0, 70.0]);
    for tenant in tenants(report) {
        let (cap, share) = (figure(tenant, "cap_percent"), figure(tenant, "share_percent"));
        assert!(share > 0.0 && share < cap + 5.0, "{share} % instead of {cap} %");
        let windows = tenant["windows_percent"].as_array().unwrap();
        assert_eq!(windows.len(), 2, "{tenant}");
        let mean = windows.iter().map(|w| w.as_f64().unwrap()).sum::<f64>() / 2.0;
        assert!((mean - share).abs() < 1e-6, "{tenant}");
        assert!((figure(tenant, "throughput_of_cap") - share / cap).abs() < 1e-6, "{tenant}");
    }
}

#[test]
fn quick_measures_each_table_and_draws_each_tenant() {
    let fixture = Fixture::new();
    let svg = fixture.runtime().join("shares.svg");
    let report = bench(&fixture, &["--quick", "--svg", svg.to_str().unwrap()]);
    assert_eq!(report["gpu"]["simulated"], true, "{report}");
    assert_eq!(report["with_shim"], true, "{report}");

    each_tenant_keeps_to_its_cap(&report);
    let split = &report["shares"][2];
    assert!(figure(split, "weighted_jain") <= 1.0 + 1e-9, "{split}");
    assert!(figure(split, "used_of_caps") < 1.05, "{split}");
    assert!(figure(split, "ratio_error_percent") >= 0.0, "{split}");

    let overhead = report["overhead"].as_array().unwrap();
    assert_eq!(overhead.len(), 3, "{report}");
    for row in overhead {
        assert!(figure(row, "without_shim_ns") > 0.0, "{row}");
        assert!(figure(row, "with_shim_ns") > 0.0, "{row}");
        assert!(figure(row, "with_shim_p99_ns") >= 1.0, "{row}");
    }
    let changes = report["changes"].as_array().unwrap();
    let times: Vec<f64> = changes.iter().map(|row| figure(row, "times")).collect();
    assert_eq!(times, [2.0, 4.0], "{report}");
    for row in changes {
        // On a busy machine the share is missed at times. A share that never changes would be right every other time.
        assert!(2.0 * figure(row, "never") < figure(row, "times"), "{row}");
        let (median, worst) = (figure(row, "median_ms"), figure(row, "worst_ms"));
        assert!((0.0..=worst).contains(&median) && worst <= 2000.0, "{row}");
        assert!(figure(row, "goal_ms") >= 20.0, "{row}");
    }
    let running = report["running"].as_array().unwrap();
    assert_eq!(running.len(), 2, "{report}");
    for row in running {
        // Programs that wait all the time, and their wake-ups.
        assert!(figure(row, "holds") > 0.0, "{row}");
        assert!(figure(row, "programs_cpu_percent") > 0.0, "{row}");
        // The kernel counts in ticks of 10 ms.
        assert!(figure(row, "arbiter_cpu_percent") >= 0.0, "{row}");
        // On an overloaded machine one or two launches waited, none of them for the clock.
        assert!(figure(row, "holds") < 10.0 || figure(row, "late_median_us") > 0.0, "{row}");
        assert!(figure(row, "sleep_late_median_us") > 0.0, "{row}");
    }
    for key in ["alone_mean_error_percent", "split_worst_ratio_error_percent"] {
        assert!(figure(&report["summary"], key) >= 0.0);
    }
    one_line_for_each_tenant(&svg, &report);
}

/// Checks that the chart shows the rows of 1 ms kernels: a thick line per tenant, with a point per sample.
fn one_line_for_each_tenant(svg: &Path, report: &Value) {
    let svg = fs::read_to_string(svg).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    assert_eq!(document.root_element().tag_name().name(), "svg");
    let lines = document.descendants().filter(|node| {
        node.has_tag_name(("http://www.w3.org/2000/svg", "polyline"))
            && node.attribute("stroke-width") == Some("2")
    });
    let points: Vec<usize> =
        lines.map(|line| line.attribute("points").unwrap().split_whitespace().count()).collect();
    let samples: Vec<usize> = report["shares"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["work"] == "1 ms")
        .flat_map(|row| row["tenants"].as_array().unwrap())
        .map(|tenant| tenant["over_time"].as_array().unwrap().len())
        .collect();
    assert_eq!(samples.len(), 3, "{report}");
    assert_eq!(points, samples, "{svg}");
}

/// Time limit for the demo's first line. The README promises three minutes from a fresh checkout: the build, which this test leaves
/// out, took some 270 s of processor time when it was measured, on two cores 135 s.
const FIRST_LINE: Duration = Duration::from_secs(10);

#[test]
fn the_demo_begins_at_once() {
    let fixture = Fixture::new();
    let mut demo = Running::start(&mut fixture.vcuda(["demo", "--sim"]));
    assert!(demo.prints_within(FIRST_LINE), "nothing within {FIRST_LINE:?}");
    assert!(demo.next_line().unwrap().starts_with("vcuda demo on a simulated GPU"));
    // Its tenants end, and are waited for.
    demo.signal(libc::SIGINT);
    assert_eq!(demo.finish().code(), Some(1));
}

/// The demo's own checks are the test. A share or a time that the machine is too busy to measure is a skip.
#[test]
fn each_claim_of_the_demo_holds_and_is_drawn() {
    let fixture = Fixture::new();
    let svg = fixture.runtime().join("demo.svg");
    let output = fixture.output(["demo", "--sim", "--json", "--svg", svg.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&succeeded(&output)).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert!(checks.len() >= 28, "{report}");
    for check in checks {
        match check["not_measurable"].as_str() {
            Some(why) => skip(&format!("demo: {}: {why}", check["check"].as_str().unwrap())),
            None => assert_eq!(check["passed"], true, "{check}"),
        }
    }
    let memory = |check: &&Value| check["measured"] == "CUDA_ERROR_OUT_OF_MEMORY";
    assert!(checks.iter().filter(memory).count() >= 7, "{report}");
    let svg = fs::read_to_string(svg).unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let words: Vec<&str> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for word in ["GPU time, beside the caps", "memory, beside the quotas", "a", "b", "c"] {
        assert!(words.contains(&word), "{word}: {words:?}");
    }
    what_it_says_to_do_next_works(&fixture, &String::from_utf8_lossy(&output.stderr));
}

fn what_it_says_to_do_next_works(fixture: &Fixture, said: &str) {
    let (_, behind) = said.split_once("`cc my-program.c ").unwrap();
    let (library, _) = behind.split_once('`').unwrap();
    let [source, program] = ["my-program.c", "my-program"].map(|name| fixture.home().join(name));
    fs::write(&source, "int cuInit(unsigned); int main(void) { return cuInit(0); }").unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg(library).arg("-o").arg(&program);
    succeeded(&compiler.output().unwrap());
    let quota = ["--memory", "4GiB", "--cores", "30"];
    succeeded(&fixture.tenant(&quota, &program).output().unwrap());
}

#[test]
fn without_the_shim_no_launch_waits() {
    let fixture = Fixture::new();
    let report = bench(&fixture, &["--quick", "--only", "alone", "--seconds", "1", "--without-shim"]);
    assert_eq!(report["with_shim"], false, "{report}");
    assert_eq!(report["overhead"], serde_json::json!([]), "{report}");
    assert_eq!(report["changes"], serde_json::json!([]), "{report}");
    for tenant in tenants(&report) {
        let (cap, share) = (figure(tenant, "cap_percent"), figure(tenant, "share_percent"));
        assert!(share > cap + 5.0, "{share} % with a cap of {cap} %");
    }
}

#[test]
fn the_table_is_for_people() {
    let fixture = Fixture::new();
    let table = fixture.stdout(["bench", "--sim", "--quick", "--only", "overhead"]);
    assert!(table.contains("launch, no limit"), "{table}");
    assert!(!table.contains("alone"), "{table}");
    for line in table.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_measured() {
    let fixture = Fixture::new();
    let refused = |options: &[&str], status: i32, names: &str| {
        let output = fixture.vcuda(["bench", "--sim"]).args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{options:?}: {}", text(&output));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains(names), "{words:?} does not name {names:?}");
        assert!(output.stdout.is_empty(), "{}", text(&output));
    };
    refused(&["--seconds", "0"], 64, "'0'");
    refused(&["--seconds", "soon"], 64, "soon");
    refused(&["--only", "memory"], 64, "memory");
    refused(&["--gpu", "1"], 64, "--gpu 1");
    refused(&["--without-shim", "--only", "overhead"], 64, "--without-shim");
    refused(&["--without-shim", "--only", "changes"], 64, "--without-shim");
    refused(&["--svg", "x.svg", "--only", "overhead"], 64, "--svg");
    refused(&["--svg", "x.svg", "--only", "changes"], 64, "--svg");
    refused(&["--svg", "/proc/no-such-place/x.svg"], 1, "/proc/no-such-place/x.svg");
}

#[test]
fn a_tenant_cannot_bench() {
    let fixture = Fixture::new();
    let vcuda = vcuda_tests::release_dir().join("vcuda");
    let output = fixture.tenant(&[], &vcuda).args(["bench", "--sim"]).output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("outside"), "{}", text(&output));
}

#[test]
fn without_a_gpu_it_says_what_to_do() {
    let fixture = Fixture::new();
    let output = fixture.output(["bench", "--seconds", "1", "--quick"]);
    if output.status.success() {
        skip("bench: without_a_gpu_it_says_what_to_do: this machine has a GPU");
        return;
    }
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("--sim"), "{}", text(&output));
}

/// Number of processes with this folder in their environment.
fn living(folder: &Path) -> usize {
    let needle = folder.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let environments = processes.filter_map(|entry| fs::read(entry.path().join("environ")).ok());
    environments.filter(|environment| environment.windows(needle.len()).any(|part| part == needle)).count()
}

#[test]
fn interrupted_it_leaves_no_process_behind() {
    let fixture = Fixture::new();
    let root = fixture.runtime().join("vcuda");
    let folder_of_bench = || {
        let mut entries = fs::read_dir(&root).into_iter().flatten().flatten();
        entries.find(|entry| entry.file_name().to_string_lossy().starts_with("fixture-"))
    };
    let mut command = fixture.vcuda(["bench", "--sim", "--only", "split"]);
    let mut running = Running::start(command.stdout(Stdio::null()));
    eventually("a tenant", Duration::from_secs(20), || {
        folder_of_bench()
            .is_some_and(|folder_of_bench| folder_of_bench.path().join("vcuda/containers/bench-2").exists())
    });
    let folder = folder_of_bench().unwrap().path();
    assert!(living(&folder) >= 1);
    running.signal(libc::SIGINT);
    assert_eq!(running.finish().code(), Some(1));
    // Arbiter and standby end by themselves once no tenant is left.
    eventually("no process is left", Duration::from_secs(10), || living(&folder) == 0);
    assert!(!folder.exists(), "{}", folder.display());
}

/// A measurement takes minutes: what is complete is not lost.
#[test]
fn interrupted_it_reports_the_complete_rows() {
    let fixture = Fixture::new();
    let root = fixture.runtime().join("vcuda");
    let has_second_row_begun = || {
        let folders = fs::read_dir(&root).into_iter().flatten().flatten();
        folders.into_iter().any(|folder| folder.path().join("vcuda/containers/bench-3").exists())
    };
    let mut command = fixture.vcuda(["bench", "--sim", "--json", "--only", "split", "--seconds", "1"]);
    let mut running = Running::start(&mut command);
    eventually("the second row", Duration::from_secs(60), has_second_row_begun);
    running.signal(libc::SIGINT);
    assert_eq!(running.finish().code(), Some(1));
    let report: Value = serde_json::from_reader(running.0.stdout.take().unwrap()).unwrap();
    let caps: Vec<f64> = tenants(&report).iter().map(|t| figure(t, "cap_percent")).collect();
    assert_eq!(caps, [30.0, 70.0]);
}
