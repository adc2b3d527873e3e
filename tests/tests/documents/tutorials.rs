//! What the tutorials give to paste runs as it stands there, one line after the other, on a simulated GPU and without root.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use vcuda_tests::sources::read;
use vcuda_tests::{Door, app, release_dir, soon, workspace};

/// Indented lines of a page's blocks, from the one that begins with `from`; those that a backslash ends continue in the next.
fn pasted(page: &str, from: &str) -> Vec<String> {
    let text = read(&workspace().join("docs").join(page)).replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned);
    let lines: Vec<String> = lines.skip_while(|line| !line.starts_with(from)).collect();
    assert!(lines.len() > 5, "{page}: {lines:?}");
    lines
}

/// Runs the lines as a person does in one shell, and returns what they print. A line that waits for Ctrl-C gets it.
fn run(lines: &[String]) -> String {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for folder in ["home", "run", "target"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::set_permissions(at("run"), fs::Permissions::from_mode(0o700)).unwrap();
    symlink(workspace().join("tests"), at("tests")).unwrap();
    symlink(release_dir(), at("target/release")).unwrap();
    fs::write(
        at("server"),
        format!("#!/bin/sh\nexec {} 1 1000000\n", app("saturate", Door::Dlsym).display()),
    )
    .unwrap();
    fs::set_permissions(at("server"), fs::Permissions::from_mode(0o755)).unwrap();
    let script: String = lines
        .iter()
        .map(|line| match line {
            line if line.contains("./hold") => {
                format!("timeout --foreground -s INT 5 {line} || [ $? = 124 ]\n")
            }
            // A person looks at the next one after it has begun.
            line if line.ends_with('&') => format!("{line}\nsleep 3\n"),
            line => format!("{line}\n"),
        })
        .collect();
    let output = Command::new("bash")
        // What runs in the background ends with the shell.
        .args(["-ec", &format!("trap 'kill $(jobs -p)' EXIT\n{script}")])
        .current_dir(place.path())
        .env_clear()
        .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", release_dir().display()))
        .env("HOME", at("home"))
        .env("XDG_RUNTIME_DIR", at("run"))
        .env("VCUDA_SIM", at("machine"))
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .unwrap();
    let said = vcuda_tests::text(&output);
    assert!(output.status.success(), "{script}{said}");
    let is_used = || {
        Command::new("pgrep").arg("-f").arg(place.path()).stdout(Stdio::null()).status().unwrap().success()
    };
    soon("the manager of these runs has ended", || !is_used());
    said
}

#[test]
fn a_workstation() {
    let said = run(&pasted("tutorial-workstation.md", "cc -DVIA_DLSYM -o busy"));
    for words in ["serve ", "train ", "holding 1073741824 denied 1", "limit seen by CUDA"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

#[test]
fn a_node_without_root_and_gpu() {
    let lines = pasted("tutorial-node.md", "export XDG_RUNTIME_DIR");
    let lines = lines.into_iter().filter(|line| !line.starts_with("sudo "));
    // As the page says of the manager that is started by hand. The machine is this test's own.
    let simulated =
        |line: String| line.replace("vcuda run ", "vcuda run --sim ").replace(" VCUDA_SIM=/tmp/machine", "");
    let said = run(&lines.map(simulated).collect::<Vec<_>>());
    for words in ["web", "4096MiB", "VcudaGrantCreated"] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}
