//! The shim's own calls of the driver break no capture and change no current context (I5), whichever calls the driver
//! considers unsafe: a program gets the same answers as without limits.

use std::collections::BTreeSet;
use std::path::Path;

use vcuda_tests::{Door, Fixture, MIB, app, succeeded, workspace};

/// The functions that the shim calls in relaxed mode, by its list.
fn own_calls() -> BTreeSet<String> {
    let text = std::fs::read_to_string(workspace().join("shim/src/driver/real/own.rs")).unwrap();
    let block = text.split("\nrelaxed! {\n").nth(1).unwrap();
    let block = block.split("\n}").next().unwrap();
    let names: BTreeSet<_> = block.lines().map(|name| name.trim().to_owned()).collect();
    assert!(names.contains("cuMemPoolGetAttribute") && names.contains("cuMemPoolTrimTo"));
    names
}

/// Runs the program without shim, with a quota, and with quota and cap, on a machine with these lines in its file.
fn same_answers(program: &Path, machine: &str) {
    const GPU: &str = "80GiB";
    let config = format!("{machine}\n[[gpus]]\nmemory_bytes = \"{GPU}\"\n");
    let run = |quota: Option<&[&str]>| {
        let fixture = Fixture::with_config(&config);
        let mut command = match quota {
            None => fixture.bare(program),
            Some(quota) => fixture.tenant(quota, program),
        };
        succeeded(&command.output().unwrap())
    };
    // NVML of an integrated GPU tells no memory (NVML_ERROR_NOT_SUPPORTED, 3), but a tenant its quota: memory/integrated.rs.
    let bare = match machine.contains("gb10") {
        true => run(None).replace(" 3 ", " 0 "),
        false => run(None),
    };
    for quota in [&["--memory", GPU][..], &["--memory", GPU, "--cores", "30"]] {
        let limited = run(Some(quota));
        for (bare, limited) in bare.lines().zip(limited.lines()) {
            assert_eq!(bare, limited, "{quota:?} on {machine}");
        }
        assert_eq!(bare, limited, "{quota:?} on {machine}");
    }
}

/// Profiles of real drivers differ in the calls that they consider unsafe, and in how the shim measures beside captures.
#[test]
fn captures_survive_on_every_profile() {
    let program = app("beside_capture", Door::Dlsym);
    for profile in std::fs::read_dir(workspace().join("simulator/profiles")).unwrap() {
        let file = profile.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            let name = file.file_stem().unwrap().to_str().unwrap();
            same_answers(&program, &format!("profile = {name:?}"));
        }
    }
}

/// As the unsafe calls are not documented, here all calls of the shim are unsafe, except two that the program makes in its
/// own mode.
#[test]
fn captures_survive_where_hardly_anything_is_safe() {
    let mut names = own_calls();
    for name in ["cuCtxSetCurrent", "cuMemFreeAsync"] {
        assert!(names.remove(name));
    }
    let names: Vec<_> = names.into_iter().collect();
    let program = app("beside_capture", Door::Dlsym);
    same_answers(&program, &format!("[driver]\ncapture_invalidating = {names:?}"));
}

/// Each kind of allocation that is counted before the driver is asked. The driver refuses an unsafe one for the capture before it looks
/// at its memory, and so before the quota.
#[test]
fn an_allocation_beyond_the_quota_gets_the_captures_answer() {
    same_answers(&app("refused_in_capture", Door::Dlsym), "");
}

#[test]
fn a_capture_that_begins_past_every_hook_is_not_recorded_into() {
    same_answers(&app("unseen_capture", Door::Dlsym), "");
}

#[test]
fn green_contexts_stay_with_their_threads() {
    let program = app("green_turns", Door::Dlsym);
    for once in [true, false] {
        same_answers(&program, &format!("[driver]\ngreen_current_once = {once}"));
    }
}

#[test]
fn memory_in_the_order_of_a_green_stream_is_charged_whose_context_another_thread_has() {
    let machine = "[driver]\ngreen_current_once = true\n[[gpus]]\nmemory_bytes = \"8GiB\"\n";
    let fixture = Fixture::with_config(&format!("context_bytes = \"32MiB\"\n{machine}"));
    let mut command = fixture.tenant(&["--memory", "512MiB"], app("green_turns", Door::Dlsym));
    succeeded(&command.arg("fill").output().unwrap());
    let peak = fixture.peak_bytes(0);
    assert!(peak <= 512 * MIB, "{peak} bytes");
}
