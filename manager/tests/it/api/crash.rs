//! Managers killed at any step, or with a disk that fails at any step. No answered grant is lost, no number is reused, and
//! no GPU gives more than it has.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vcuda_manager::grant::{Grant, Holder};
use vcuda_manager::ledger::{Disk, RealDisk};
use vcuda_manager::state::{Asked, Create, GrantError, Resize};
use vcuda_quota::Quota;
use vcuda_quota::pods::bounds::Chosen;

use super::failing_disk::{Doomed, Fate, Mounted};
use super::harness::{GIB, Kept, inventory, settings, uuid};

const SCRATCH: &str = "VCUDA_TEST_SCRATCH";
const STEP: &str = "VCUDA_TEST_STEP";
/// Number of steps of a write.
const STEPS: usize = 7;

fn amounts(memory_bytes: u64) -> Quota {
    Quota::fixed(Some(memory_bytes), 10)
}

/// All amounts chosen, none a default.
const ALL: Chosen = Chosen { policy: true, priority: true, cores_max: true };

fn create(key: &str) -> Create {
    Create {
        is_suspendable: false,
        memory_wait_ms: None,
        is_transient: false,
        request_id: format!("r-{key}"),
        key: key.to_owned(),
        holder: Holder::default(),
        owner: None,
        amounts: amounts(GIB),
        chosen: ALL,
        asked: Asked::Any { count: 1, placement: None, include: Vec::new(), exclude: Vec::new() },
    }
}

/// Not a test, but the program of these tests' children. It writes each answer as a line to standard output once it has it.
#[tokio::test]
#[ignore = "the child of other tests"]
async fn child() {
    let scratch = PathBuf::from(std::env::var_os(SCRATCH).unwrap());
    let step = std::env::var_os(STEP).and_then(|step| step.to_str()?.parse().ok());
    let disk: Box<dyn Disk> = match step {
        Some(at) => Box::new(Doomed::new(at, Fate::Kill)),
        None => Box::new(RealDisk),
    };
    let kept = Kept::start(settings(&scratch), disk).await.unwrap();
    let tell = |line: String| {
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    let already: BTreeSet<String> =
        kept.grants.grant_table().grants().map(|grant| grant.key.clone()).collect();
    for round in 0_u32.. {
        let key = format!("k{round}");
        if already.contains(&key) {
            continue;
        }
        let made = kept.grants.create(create(&key)).await;
        match made {
            Ok(grant) => tell(format!("\nmade {} {}\n", grant.id, grant.number)),
            // The GPUs are full: it continues with the grants it has.
            Err(GrantError::NoRoom(_)) => {}
            Err(error) => tell(format!("\nfailed {error}\n")),
        }
        let grant_table = kept.grants.grant_table();
        let oldest = grant_table.grants().next().cloned();
        if let Some(oldest) = oldest.filter(|_| round % 3 == 2) {
            let resize = Resize {
                request_id: format!("s{round}"),
                id: oldest.id.to_string(),
                amounts: amounts(GIB / 2),
                chosen: ALL,
                expected_generation: None,
                for_ms: None,
                owner: None,
            };
            if kept.grants.resize(resize).await.is_ok() {
                tell(format!("\nshrunk {} {}\n", oldest.id, oldest.number));
            }
            // Written beforehand, as the grant may be gone from here on.
            tell(format!("\nreleasing {} {}\n", oldest.id, oldest.number));
            if kept.grants.release(oldest.id.as_str(), false, None).await.is_ok() {
                tell(format!("\nreleased {} {}\n", oldest.id, oldest.number));
            }
        }
        if round > 200 {
            break;
        }
    }
}

fn spawn(scratch: &Path, step: Option<usize>) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "api::crash::child", "--ignored", "--nocapture"])
        .env(SCRATCH, scratch)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(step) = step {
        command.env(STEP, OsString::from(step.to_string()));
    }
    command.spawn().unwrap()
}

/// Answers of a child, over all its lives.
#[derive(Debug, Default)]
struct Told {
    /// Ids of created grants, by number.
    made: BTreeMap<u64, String>,
    releasing: BTreeSet<u64>,
    released: BTreeSet<u64>,
}

impl Told {
    /// Reads a child's output until it ends.
    fn read_output(&mut self, child: &mut Child) {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            self.line(&line);
        }
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let &[what, id, number] = words.as_slice() else {
            return;
        };
        let Ok(number) = number.parse::<u64>() else { return };
        match what {
            "made" => {
                let before = self.made.insert(number, id.to_owned());
                assert!(before.is_none(), "number {number} was given twice: {before:?}, {id}");
            }
            "releasing" => drop(self.releasing.insert(number)),
            "released" => drop(self.released.insert(number)),
            _ => {}
        }
    }

    /// Compares the answers with what a new manager finds.
    async fn check(&self, scratch: &Path) {
        let kept = Kept::start(settings(scratch), Box::new(RealDisk)).await.unwrap();
        assert!(!kept.has_told("VcudaLedgerRebuilt"), "a kill leaves the old ledger or the new one");
        let grant_table = kept.grants.grant_table();
        let there: BTreeMap<u64, Arc<Grant>> =
            grant_table.grants().map(|grant| (grant.number, Arc::clone(grant))).collect();
        for (number, id) in &self.made {
            match there.get(number) {
                Some(grant) => {
                    assert_eq!(grant.id.as_str(), id);
                    assert!(!self.released.contains(number), "{id} was released and is there");
                }
                None => assert!(self.releasing.contains(number), "{id} was answered and is lost"),
            }
            assert!(*number <= grant_table.last_number);
        }
        for grant in there.values() {
            assert!(kept.grants.directories().is_present(&grant.id));
        }
        // No GPU gives more than it has.
        let gpus = inventory(2);
        for candidate in kept.grants.candidates(&gpus) {
            assert!(candidate.load.memory_bytes <= candidate.gpu.memory_total_bytes);
        }
        // No directory is without a grant.
        let found = kept.grants.directories().granted().unwrap();
        assert_eq!(found.len(), there.len());
        kept.stop().await;
    }
}

/// Kills a child at each step of a write, one step later in each life.
#[tokio::test]
async fn killed_at_each_step_of_a_write() {
    let scratch = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    for step in 0..4 * STEPS {
        let mut child = spawn(scratch.path(), Some(step));
        told.read_output(&mut child);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "{status:?}");
        told.check(scratch.path()).await;
    }
    assert!(told.made.len() > 20 && !told.released.is_empty(), "{told:?}");
}

/// Kills a child at a random instant: in a write, between ledger and directory, in a directory.
#[tokio::test]
async fn killed_at_any_instant() {
    let scratch = tempfile::tempdir().unwrap();
    let mut told = Told::default();
    let lives = std::env::var_os("VCUDA_SOAK").map_or(25, |_| 1000);
    for life in 0..lives {
        let mut child = spawn(scratch.path(), None);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        // Killed some lines after the first answer, another number in each life. The kernel decides the exact instant.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut left = 1 + life % 7;
        for line in lines.by_ref() {
            told.line(&line);
            left -= u32::from(line.starts_with("made"));
            if left == 0 {
                break;
            }
        }
        tokio::time::sleep(Duration::from_micros(u64::from(life) * 97 % 2000)).await;
        kill(pid, Signal::SIGKILL).unwrap();
        for line in lines {
            told.line(&line);
        }
        child.wait().unwrap();
        told.check(scratch.path()).await;
    }
    assert!(told.made.len() >= usize::try_from(lives).unwrap(), "{}", told.made.len());
}

/// A disk that fails at each step: the caller gets an error, nothing is taken, and service recovers by itself.
#[tokio::test]
async fn a_disk_that_fails_at_each_step() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    for code in [ENOSPC, EIO] {
        for step in 0..2 * STEPS {
            let scratch = tempfile::tempdir().unwrap();
            let kept = Kept::start(settings(scratch.path()), Box::new(RealDisk)).await.unwrap();
            let first = kept.grants.create(create("a")).await.unwrap();
            kept.stop().await;
            let disk = Doomed::new(step, Fate::Fail(code));
            let kept = Kept::start(settings(scratch.path()), Box::new(disk)).await.unwrap();
            let grants = &kept.grants;
            let mut last = first.number;
            if step >= STEPS {
                // The first write of this life succeeds, and the next one fails.
                last = grants.create(create("between")).await.unwrap().number;
            }
            let before = grants.grant_table().len();
            let failed = grants.create(create("b")).await.unwrap_err();
            assert!(matches!(&failed, GrantError::Unavailable(text) if text.contains("ledger")), "{failed}");
            // It may have recovered already.
            assert!(kept.has_told("VcudaLedgerFailed"));
            assert_eq!(grants.grant_table().len(), before);
            let refused = vcuda_manager::grant::GrantId::new("b", last + 1);
            assert!(!grants.directories().path(&refused).exists());
            // Repeats the same request.
            let second = grants.create(create("b")).await.unwrap();
            assert!(second.number > last + 1, "{refused} may be on the disk");
            assert!(grants.problem().borrow().is_none());
            let is_there = |grant_table: &vcuda_manager::grant_table::GrantTable| {
                let has = |grant: &Arc<Grant>| grant_table.by_number(grant.number) == Some(grant);
                grant_table.len() == before + 1 && has(&first) && has(&second)
            };
            assert!(is_there(&grants.grant_table()));
            kept.stop().await;
            let kept = Kept::start(settings(scratch.path()), Box::new(RealDisk)).await.unwrap();
            assert!(is_there(&kept.grants.grant_table()));
            kept.stop().await;
        }
    }
}

/// A failed release or resize leaves the grant as it was.
#[tokio::test]
async fn a_failed_change_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    for release in [false, true] {
        let scratch = scratch.path().join(release.to_string());
        let disk = Doomed::new(STEPS, Fate::Fail(28));
        let kept = Kept::start(settings(&scratch), Box::new(disk)).await.unwrap();
        let made = kept.grants.create(create("a")).await.unwrap();
        if release {
            kept.grants.release("a-1", false, None).await.unwrap_err();
        } else {
            let resize = Resize {
                request_id: "s".to_owned(),
                id: "a-1".to_owned(),
                amounts: amounts(2 * GIB),
                chosen: ALL,
                expected_generation: None,
                for_ms: None,
                owner: None,
            };
            kept.grants.resize(resize).await.unwrap_err();
        }
        // The next change does not bring it either.
        kept.grants.create(create("b")).await.unwrap();
        assert_eq!(kept.grants.grant_table().by_key("a"), Some(&made));
        assert!(kept.grants.directories().is_present(&made.id));
        // Released amounts are not granted twice.
        let candidates = inventory(2);
        let candidate = kept.grants.candidates(&candidates);
        let taken: u64 = candidate.iter().map(|candidate| candidate.load.memory_bytes).sum();
        assert_eq!(taken, 2 * GIB);
        kept.stop().await;
    }
}

/// A full file system, for the ledger and for the directories. It needs the right to mount one.
#[tokio::test]
async fn a_real_file_system_that_is_full() {
    let scratch = tempfile::tempdir().unwrap();
    let settings = settings(scratch.path());
    for full in [&settings.state, &settings.root] {
        let Some(_mounted) = Mounted::new(full) else {
            return;
        };
        let kept = Kept::start(settings.clone(), Box::new(RealDisk)).await.unwrap();
        let filler = full.join("filler");
        let mut file = File::create(&filler).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        let refused = kept.grants.create(create("a")).await.unwrap_err();
        assert!(matches!(&refused, GrantError::Unavailable(_)), "{refused}");
        assert!(kept.grants.grant_table().is_empty());
        // Truncated, not only removed: a child that another test starts at this moment may hold the open file, and its
        // space, until it runs its program.
        file.set_len(0).unwrap();
        std::fs::remove_file(&filler).unwrap();
        let made = kept.grants.create(create("a")).await.unwrap();
        assert!(kept.grants.directories().is_present(&made.id));
        assert_eq!(made.gpus, [uuid(1)]);
        assert!(kept.grants.release(made.id.as_str(), false, None).await.unwrap());
        kept.stop().await;
    }
}
