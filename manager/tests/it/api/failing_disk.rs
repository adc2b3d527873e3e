//! Disk that fails, or kills the process, at one step of a write.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vcuda_manager::ledger::{Disk, RealDisk};

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The process is killed.
    Kill,
    /// The step fails half done, with this error number.
    Fail(i32),
}

/// A disk that fails at one step, counted from the start.
#[derive(Debug, Clone)]
pub(crate) struct Doomed {
    at: usize,
    fate: Fate,
    done: Arc<AtomicUsize>,
}

impl Doomed {
    pub(crate) fn new(at: usize, fate: Fate) -> Self {
        let done = Arc::new(AtomicUsize::new(0));
        Self { at, fate, done }
    }

    fn step(&self) -> io::Result<()> {
        if self.done.fetch_add(1, Ordering::Relaxed) != self.at {
            return Ok(());
        }
        match self.fate {
            Fate::Kill => {
                kill(Pid::this(), Signal::SIGKILL)?;
                Ok(())
            }
            Fate::Fail(code) => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Disk for Doomed {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        RealDisk.create(path)
    }

    fn write(&self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        self.step()?;
        let (half, rest) = bytes.split_at(bytes.len() / 2);
        RealDisk.write(file, half)?;
        self.step()?;
        RealDisk.write(file, rest)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step()?;
        RealDisk.sync(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.rename(from, to)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.step()?;
        RealDisk.sync_directory(directory)?;
        // Also after the last step.
        self.step()
    }
}

/// A mounted small tmpfs, unmounted on drop.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn new(path: &Path) -> Option<Self> {
        std::fs::create_dir_all(path).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m,mode=0755", "tmpfs"])
            .arg(path)
            .stderr(Stdio::null())
            .status();
        done.is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
