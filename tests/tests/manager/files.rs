//! A tenant's two files in the hands of hostile processes: damaged, cut, replaced, of another release, on a full disk,
//! while tenants run. Processes outside the tenant notice nothing (I12). Processes inside get no memory or keep their quota
//! (I11). The library can be exchanged under running processes (I13).
//!
//! `VCUDA_SOAK` changes each byte of the files instead of samples.

mod damage;
mod forbidden;
mod grown;
mod releases;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use vcuda_tests::{Commanded, Door, Fixture, MIB, Running, Tenant, Tmpfs, app, eventually, text};

use damage::{Inside, damages};

/// A machine with cheap contexts and modules.
const SMALL_CONTEXTS: &str =
    "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"80GiB\"\n";
/// Memory of a context, with the variable of the programs' module (bytes).
const CONTEXT: u64 = 4 * MIB + 8;
const QUOTA: [&str; 4] = ["--memory", "64MiB", "--cores", "50"];

fn obey(tenant: &Tenant<'_>) -> Commanded {
    Commanded::start(&mut tenant.command(app("obey", Door::Dlsym)))
}

/// Output of a command, which must end by itself.
fn ends(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually(&format!("{command:?} ends"), Duration::from_secs(20), || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

/// Checks that the process gets what is expected after this damage.
fn gets(inside: &mut Commanded, expected: Inside, what: &str) {
    match expected {
        Inside::Quota => inside.fills_to_the_byte(),
        Inside::Nothing => {
            // It checks at the latest after ten milliseconds.
            eventually(what, Duration::from_millis(500), || match inside.alloc(1) {
                Some(0) => false,
                answer => answer == Some(2) || panic!("{what}: {answer:?}"),
            });
        }
        Inside::Answer => assert!(matches!(inside.alloc(1), Some(0 | 2)), "{what}"),
        Inside::Bus => {
            if inside.alloc(1).is_none() {
                assert_eq!(inside.0.finish().signal(), Some(libc::SIGBUS), "{what}");
            }
        }
    }
    if expected != Inside::Bus {
        inside.lives();
    }
}

#[test]
fn damaged_files_harm_their_own_container_only() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let bystander = fixture.keep("bystander", &QUOTA);
    let mut outside = obey(&bystander);
    let manager = manager(&fixture);
    // A reader that polls, as a manager does.
    let mut watch = Running::start(&mut fixture.vcuda(["smi", "--watch", "--json"]));
    watch.next_line().unwrap();
    let damages = damages();
    let names: Vec<String> = (0..damages.len()).map(|at| format!("victim{at}")).collect();
    let tenants: Vec<Tenant<'_>> = names.iter().map(|name| fixture.keep(name, &QUOTA)).collect();
    let mut inside: Vec<Commanded> = tenants.iter().map(obey).collect();
    for (((file, what, expected, damage), tenant), inside) in damages.iter().zip(&tenants).zip(&mut inside) {
        damage(&tenant.directory().join(file));
        outside.fills_to_the_byte();
        gets(inside, *expected, &format!("{file}, {what}"));
    }
    for (((file, what, ..), tenant), name) in damages.iter().zip(&tenants).zip(&names) {
        let what = format!("{file}, {what}");
        // A new process gets no memory, and learns it from the creation of its context, unless the manager has mended the files.
        let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
        assert!(newcomer.status.code().is_some(), "{what}: {}", text(&newcomer));
        let has_quota = || tenant.smi(0)["memory_limit_bytes"] == 64 * MIB;
        assert!(!newcomer.status.success() || has_quota(), "{what}: {}", text(&newcomer));
        // Programs outside report the fault in one line, or do what they were told.
        let set = ends(&mut fixture.vcuda(["set", name, "--memory", "1GiB"]));
        let join = ends(fixture.tenant(&["--name", name], "echo").arg("joined"));
        for output in [set, join] {
            let code = output.status.code();
            assert!(matches!(code, Some(0 | 1)), "{what}: {}", text(&output));
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(words.trim().lines().count(), usize::from(code == Some(1)), "{what}: {words}");
        }
        outside.fills_to_the_byte();
    }
    // All programs outside still run, and report true figures of the bystander.
    let doctor = ends(&mut fixture.vcuda(["doctor"]));
    assert!(doctor.status.code().is_some(), "{}", text(&doctor));
    assert_eq!(bystander.used_bytes(), CONTEXT);
    assert_eq!(outside.alloc(MIB), Some(0));
    let now = format!("\"memory_used_bytes\":{}", CONTEXT + MIB);
    while !watch.next_line().unwrap().contains(&now) {}
    assert_eq!(self::manager(&fixture), manager);
}

/// PID of the manager of this fixture's runs, as that wrote it into its lock.
fn manager(fixture: &Fixture) -> u32 {
    let lock = fs::read_to_string(fixture.runtime().join("vcuda/manager.lock")).unwrap();
    lock.parse().unwrap()
}

/// Used bytes of the files while one process of a tenant runs: the header, the first device, the first two slots. The
/// offsets are those of `crates/region/src/layout.rs`.
const LIMITS_BYTES: usize = 256 + 384;
const SLOTS: usize = 512;

fn said(file: &str) -> Vec<usize> {
    let step = if std::env::var_os("VCUDA_SOAK").is_some() { 1 } else { 7 };
    let bucket = 128 + 128 * SLOTS * 17;
    let parts = match file {
        "limits" => [0..256, 256..LIMITS_BYTES, 0..0],
        _ => [0..128 + 2 * 128, 128 + 128 * SLOTS..128 + 128 * SLOTS + 2 * 128, bucket..bucket + 640],
    };
    parts.into_iter().flatten().step_by(step).collect()
}

/// Wakes processes so that they read `limits` now, rather than in ten milliseconds.
fn notify(directory: &Path) {
    let usage = OpenOptions::new().read(true).write(true).open(directory.join("usage")).unwrap();
    let mut word = [0; 4];
    usage.read_exact_at(&mut word, 32).unwrap();
    let next = u32::from_ne_bytes(word).wrapping_add(1);
    usage.write_all_at(&next.to_ne_bytes(), 32).unwrap();
}

/// Changes each used byte, and restores it. Returns the numbers of granted and refused allocations inside meanwhile.
fn flip_each(
    file: &str,
    tenant: &Tenant<'_>,
    inside: &mut Commanded,
    outside: &mut Commanded,
) -> (usize, usize) {
    let path = tenant.directory().join(file);
    let open = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (mut granted, mut refused) = (0, 0);
    for (count, offset) in said(file).into_iter().enumerate() {
        // The arbiter continues to write `limits`; no process writes `usage` between two answers.
        let sound = fs::read(&path).unwrap();
        open.write_all_at(&[!sound[offset]], offset as u64).unwrap();
        if file == "limits" {
            notify(&tenant.directory());
        }
        match inside.alloc(4096) {
            Some(0) => {
                granted += 1;
                inside.free();
            }
            Some(2) => refused += 1,
            other => panic!("{file}, byte {offset}: {other:?}"),
        }
        inside.lives();
        if count % 16 == 0 {
            outside.fills_to_the_byte();
            // A new process gets a context or none; it is not killed.
            let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
            assert!(newcomer.status.code().is_some(), "{file}, byte {offset}: {}", text(&newcomer));
        }
        match file {
            "limits" => {
                open.write_all_at(&sound[offset..=offset], offset as u64).unwrap();
                notify(&tenant.directory());
            }
            _ => open.write_all_at(&sound, 0).unwrap(),
        }
    }
    (granted, refused)
}

#[test]
fn flipped_bytes_under_a_running_tenant() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let bystander = fixture.keep("bystander", &QUOTA);
    let mut outside = obey(&bystander);
    let manager = manager(&fixture);
    let mut watch = Running::start(&mut fixture.vcuda(["smi", "--watch", "--json"]));
    watch.next_line().unwrap();
    let tenant = fixture.keep("victim", &["--memory", "64MiB"]);
    // The arbiter writes all its changes at once, and nothing more while no process launches. So this test restores the
    // present content.
    eventually("the arbiter knows of it", Duration::from_secs(5), || {
        fs::read(tenant.directory().join("limits")).unwrap()[256 + 16..256 + 20] == 1_u32.to_ne_bytes()
    });
    for file in ["limits", "usage"] {
        let mut inside = obey(&tenant);
        eventually("it is alone", Duration::from_secs(2), || inside.info().0 == 64 * MIB - CONTEXT);
        inside.fills_to_the_byte();
        let (granted, refused) = flip_each(file, &tenant, &mut inside, &mut outside);
        assert!(granted > 0, "{file}");
        assert!(file != "limits" || refused > 20, "nothing that was damaged was noticed");
        // After restoring, all is as before, once the processes that ended are found dead.
        eventually("the dead are not counted", Duration::from_secs(2), || {
            inside.info().0 == 64 * MIB - CONTEXT
        });
        inside.fills_to_the_byte();
    }
    outside.fills_to_the_byte();
    assert!(watch.0.try_wait().unwrap().is_none(), "`vcuda smi --watch` has ended");
    assert_eq!(self::manager(&fixture), manager);
}

#[test]
fn a_full_disk_ends_no_process() {
    let fixture = Fixture::with_config(SMALL_CONTEXTS);
    let Some(disk) = Tmpfs::over(&fixture.runtime(), "size=12m") else {
        return;
    };
    let tenant = fixture.keep("full", &QUOTA);
    let mut first = obey(&tenant);
    let fill = fs::write(disk.path().join("rest"), vec![1; 12 << 20]);
    assert_eq!(fill.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    // New slots, records and limits need blocks that are not allocated.
    let mut others: Vec<Commanded> = (0..8).map(|_| obey(&tenant)).collect();
    for other in &mut others {
        other.fills_to_the_byte();
    }
    first.fills_to_the_byte();
    assert_eq!(tenant.used_bytes(), 9 * CONTEXT);
    // A quota that could not be written down is not changed.
    let set = ends(&mut fixture.vcuda(["set", "full", "--memory", "80MiB"]));
    assert_eq!(set.status.code(), Some(69), "{}", text(&set));
    assert!(text(&set).contains("nothing was changed; make room there"), "{}", text(&set));
    assert_eq!(first.info().1, 64 * MIB);
    // There is no room for another tenant, and none is left half made.
    let refused = ends(&mut fixture.tenant(&QUOTA, "true"));
    assert_eq!(refused.status.code(), Some(69), "{}", text(&refused));
    // A hole in `usage` cannot be filled any more: no memory is granted, rather than a fault at its first use.
    let path = tenant.directory().join("usage");
    for one in others.drain(..) {
        drop(one);
    }
    drop(first);
    assert!(punched(&path), "a hole in a tmpfs file");
    fs::write(disk.path().join("more"), vec![1; 12 << 20]).unwrap_err();
    let newcomer = ends(&mut tenant.command(app("obey", Door::Dlsym)));
    assert_eq!(newcomer.status.code(), Some(1), "{}", text(&newcomer));
    // With room again, the hole is filled and all is well.
    fs::remove_file(disk.path().join("rest")).unwrap();
    fs::remove_file(disk.path().join("more")).unwrap();
    obey(&tenant).fills_to_the_byte();
}

/// Makes a hole of all but the first pages of the file.
fn punched(path: &Path) -> bool {
    let size = fs::metadata(path).unwrap().len() - 8192;
    let mut command = Command::new("fallocate");
    command.args(["--punch-hole", "--offset", "8192", "--length", &size.to_string()]);
    command.arg(path).status().unwrap().success()
}
