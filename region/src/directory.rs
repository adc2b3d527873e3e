//! A tenant's directory: made, joined, found, and removed when its last process is gone.
//!
//! A directory lives while a process of the run lives. Two things show it: a shared lock on the directory, which `vcuda
//! run` leaves to the command and all its descendants (for those that have not used a GPU yet), and the slots in `usage`
//! (for those that closed all descriptors). A process that removes a directory holds its lock exclusively; a process that joins one
//! holds it shared and then looks whether the directory is still there.
//!
//! A container's processes may have any user id, so the directory and `limits` may be read, and `usage` written, by
//! everybody who can reach them. On the host no other user can: `containers`, above, is its owner's alone, and only what
//! its owner mounts into a container, or leaves open for a command, leads past it.

use core::time::Duration;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::layout::{LimitsFile, UsageFile};
use crate::limits::{self, Limits};
use crate::map::{Mapped, Mapping};
use crate::process::{Identity, ProcessView, environment};
use crate::slots::{self, Usage};
use crate::sys::{self, Lock};
use crate::usage_reader::UsageReader;
use crate::{GpuUuid, MAX_DEVICES};
use vcuda_quota::DeviceConfig;

mod debts;
mod error;
mod granted;
mod remove;
pub use error::DirectoryError;
pub use granted::{
    GRANT, create_granted, discard, is_granted, is_used, read_grant, remove_granted, restore_usage, set_grant,
};

use remove::{is_abandoned, remove};

/// The variable by which `vcuda run` tells its command where the directory is.
pub const ENV_DIRECTORY: &str = "VCUDA_DIR";

/// Where a managed container finds its directory.
pub const MANAGED: &str = "/etc/vcuda";

/// The directory that binds the calling process: [`MANAGED`] if `limits` is there (then nothing in the environment can
/// redirect it, I11), else `from_environment`, the value of `VCUDA_DIR`; nothing if neither is set.
#[must_use]
pub fn resolve(from_environment: Option<&Path>) -> Option<PathBuf> {
    resolve_with(Path::new(MANAGED), from_environment)
}

fn resolve_with(managed: &Path, from_environment: Option<&Path>) -> Option<PathBuf> {
    match fs::symlink_metadata(managed.join("limits")) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            from_environment.map(|directory| within_reach(directory.to_owned()))
        }
        // There, or hidden from us: either way this is a managed container.
        _ => Some(managed.to_owned()),
    }
}

/// `directory` itself, or, where the way to it is closed to us, the descriptor of it that `vcuda run` left open: a command
/// of another user (by `su`, `setpriv`, a set-user-ID program) has no other way.
fn within_reach(directory: PathBuf) -> PathBuf {
    let closed =
        |error: io::Error| (error.kind() == io::ErrorKind::PermissionDenied).then_some(directory.as_path());
    let Some(closed) = fs::metadata(&directory).err().and_then(closed) else {
        return directory;
    };
    let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    open.map(|entry| entry.path())
        .find(|descriptor| fs::read_link(descriptor).is_ok_and(|target| target == closed))
        .unwrap_or(directory)
}

/// What a new tenant is given.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Its name: also the name of its directory.
    pub name: String,
    /// Its GPUs.
    pub devices: Vec<(GpuUuid, DeviceConfig)>,
}

impl Tenant {
    fn check(&self) -> Result<(), DirectoryError> {
        let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !(1..=64).contains(&self.name.len())
            || self.name.starts_with('.')
            || !self.name.bytes().all(letters)
        {
            return Err(DirectoryError::Name(self.name.clone()));
        }
        if !(1..=MAX_DEVICES).contains(&self.devices.len()) {
            return Err(DirectoryError::Devices(self.devices.len()));
        }
        match self.devices.iter().find(|(_, config)| !config.is_valid()) {
            Some((uuid, _)) => Err(DirectoryError::OutOfRange(*uuid)),
            None => Ok(()),
        }
    }
}

/// Whether a directory is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Made by this call.
    Created,
    /// A living run of this name was joined: its limits hold, the given ones do not.
    Joined,
}

/// A tenant's directory, kept from removal while this value lives.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    lock: File,
}

impl Directory {
    /// Makes the directory `<root>/containers/<name>` with `limits` and `usage`, or joins the living run of that name. A
    /// directory whose processes are all gone is replaced; what they owed of GPU time, the new one owes. `me` is given a
    /// slot, so that the directory lives as long as the process (also after an `exec`).
    ///
    /// # Errors
    /// A bad name, a root that others can write, a full or read-only disk: see [`DirectoryError`].
    pub fn create_or_join(
        root: &Path,
        tenant: &Tenant,
        me: &Identity,
        now_ns: u64,
    ) -> Result<(Self, Origin), DirectoryError> {
        tenant.check()?;
        let containers = prepare(root)?;
        let path = containers.join(&tenant.name);
        let mut debts = Vec::new();
        for attempt in 0..1000 {
            match open_directory(&path) {
                Ok(_) if is_granted(&path) => return Err(DirectoryError::Granted(path)),
                Ok(lock) => match hold(&path, &lock, me)? {
                    Held::Living => {
                        join(&path, me)?;
                        return Ok((Self { path, lock }, Origin::Joined));
                    }
                    Held::Dead => {
                        debts = debts::read(&path, now_ns);
                        remove(&path)?;
                    }
                    Held::Gone => {}
                    Held::Locked => std::thread::sleep(Duration::from_millis(1)),
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if let Some(lock) = create(&containers, &path, (tenant, &debts), me, (now_ns, attempt))? {
                        return Ok((Self { path, lock }, Origin::Created));
                    }
                }
                Err(error) => return Err(DirectoryError::of_open(&path, error)),
            }
        }
        Err(DirectoryError::Busy(path))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the directory for the calling process and all its descendants, across `exec`, until the last one has closed
    /// the inherited descriptor or ended.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn keep_across_exec(self) -> io::Result<()> {
        std::mem::forget(sys::inheritable(&self.lock)?);
        Ok(())
    }
}

/// The directories of the tenants under `root`, by name.
///
/// # Errors
/// `root` cannot be read. A root that does not exist has no tenants.
pub fn list(root: &Path) -> Result<Vec<(String, PathBuf)>, DirectoryError> {
    let mut found: Vec<_> = read(&root.join("containers"), |entry| {
        // Mostly the folder itself says what each of its entries is.
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let name = entry.file_name().into_string().ok()?;
        (is_directory && !name.starts_with('.')).then(|| (name, entry.path()))
    })?;
    found.sort();
    Ok(found)
}

/// Removes the directories under `root` whose processes are all gone, and what killed commands left half made; not those
/// that were granted. Returns how many.
///
/// # Errors
/// `root` cannot be read, or a dead directory not be removed. A root that does not exist has nothing to remove.
pub fn remove_dead(root: &Path, me: &Identity) -> Result<usize, DirectoryError> {
    let mut removed = 0;
    for path in entries(&root.join("containers"))? {
        // What is no directory is none of ours; what is gone was removed by another command.
        let Ok(lock) = open_directory(&path) else { continue };
        let is_unfinished = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let is_dead = if is_unfinished {
            is_abandoned(&lock)
        } else {
            !is_granted(&path) && matches!(hold(&path, &lock, me)?, Held::Dead)
        };
        if is_dead {
            remove(&path)?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn entries(containers: &Path) -> Result<Vec<PathBuf>, DirectoryError> {
    read(containers, |entry| Some(entry.path()))
}

/// What `pick` makes of each entry; none where there is no such folder.
fn read<T>(containers: &Path, pick: impl Fn(&fs::DirEntry) -> Option<T>) -> Result<Vec<T>, DirectoryError> {
    let listed = fs::read_dir(containers).and_then(|entries| {
        entries
            .filter_map(|entry| entry.map(|entry| pick(&entry)).transpose())
            .collect::<io::Result<Vec<T>>>()
    });
    match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|error| DirectoryError::Io(containers.to_owned(), error)),
    }
}

/// Makes `root` and `containers` in it, and checks that no other user can write in the one or enter the other.
fn prepare(root: &Path) -> Result<PathBuf, DirectoryError> {
    let containers = root.join("containers");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&containers)
        .map_err(|error| DirectoryError::of_open(&containers, error))?;
    for path in [root, &containers] {
        let metadata =
            fs::symlink_metadata(path).map_err(|error| DirectoryError::Io(path.to_owned(), error))?;
        if !metadata.is_dir() || metadata.uid() != sys::effective_uid() || metadata.mode() & 0o022 != 0 {
            return Err(DirectoryError::Unsafe(path.to_owned()));
        }
    }
    // Made by an earlier version, or by hand.
    permit(&containers, 0o700).map_err(|error| DirectoryError::Io(containers.clone(), error))?;
    Ok(containers)
}

/// Sets the mode, whatever the umask.
fn permit(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn open_directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// What trying to lock a directory showed.
enum Held {
    /// Held shared: a run lives here, and it cannot be removed any more.
    Living,
    /// Held exclusively: no process lives here, and none can join.
    Dead,
    /// The name belongs to another directory by now.
    Gone,
    /// Someone else holds it exclusively, for a moment.
    Locked,
}

fn hold(path: &Path, lock: &File, me: &Identity) -> Result<Held, DirectoryError> {
    let io = |error| DirectoryError::Io(path.to_owned(), error);
    let alone = sys::try_lock(lock, Lock::Exclusive).map_err(io)?;
    if alone && is_linked(path, lock) && !has_living_slots(path, me) && !is_meant_by_a_process(path) {
        return Ok(Held::Dead);
    }
    // From exclusive to shared the lock is open for a moment: hence the look at the name comes after it.
    if !sys::try_lock(lock, Lock::Shared).map_err(io)? {
        return Ok(Held::Locked);
    }
    Ok(if is_linked(path, lock) {
        Held::Living
    } else {
        Held::Gone
    })
}

/// Whether `path` still names the directory that is open as `lock`.
fn is_linked(path: &Path, lock: &File) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    fs::symlink_metadata(path).is_ok_and(|named| lock.metadata().is_ok_and(|open| same(named, open)))
}

/// Whether a process other than the calling one was started with this directory in its environment: a daemon closes what
/// it inherits, and may use a GPU only later.
fn is_meant_by_a_process(path: &Path) -> bool {
    let mut meant = ENV_DIRECTORY.as_bytes().to_vec();
    meant.push(b'=');
    meant.extend_from_slice(path.as_os_str().as_bytes());
    let is_process = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    let me = std::process::id().to_string();
    // Another user's environment is not shown, nor that of a process that has just ended.
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_process(&entry.file_name()) && entry.file_name() != me.as_str())
        .filter_map(|entry| environment(&entry.path()).ok())
        .any(|variables| variables.split(|byte| *byte == 0).any(|one| one == meant))
}

/// A `usage` that cannot be read has no slots: its processes, should they live, only harmed themselves. One of another
/// version may have some: a program that can read it removes it.
fn has_living_slots(path: &Path, me: &Identity) -> bool {
    match UsageReader::open(path) {
        Ok(usage) => usage.has_living(&ProcessView::new(*me)).unwrap_or(false),
        Err(error) => error.is_of_another_version(),
    }
}

fn join(path: &Path, me: &Identity) -> Result<(), DirectoryError> {
    Limits::read(path).map_err(DirectoryError::Open)?;
    let usage = Usage::open(path).map_err(DirectoryError::Open)?;
    usage
        .claim(me)
        .map_err(|_| DirectoryError::Full(path.to_owned()))?;
    Ok(())
}

/// Makes the directory under a name of its own, whole, and then gives it the right one. Nothing if another was faster.
fn create(
    containers: &Path,
    path: &Path,
    (tenant, debts): (&Tenant, &[(GpuUuid, i64)]),
    me: &Identity,
    (now_ns, attempt): (u64, u32),
) -> Result<Option<File>, DirectoryError> {
    let new = containers.join(format!(".new-{}-{now_ns}-{attempt}", me.pid));
    let made = fill_new(&new, tenant, me, now_ns).and_then(|lock| {
        debts::write(&new, debts).map_err(io::Error::other)?;
        sys::rename_new(&new, path).map(|()| lock)
    });
    match made {
        Ok(lock) => Ok(Some(lock)),
        Err(error) => {
            // What is left of it, a later command removes.
            let _ = fs::remove_dir_all(&new);
            if error.kind() == io::ErrorKind::AlreadyExists {
                Ok(None)
            } else {
                Err(DirectoryError::Io(new, error))
            }
        }
    }
}

fn fill_new(new: &Path, tenant: &Tenant, me: &Identity, now_ns: u64) -> io::Result<File> {
    let lock = make_files(new, tenant, now_ns)?;
    permit(new, 0o755)?;
    let usage = Usage::open(new).map_err(io::Error::other)?;
    usage.claim(me).map_err(io::Error::other)?;
    Ok(lock)
}

/// The directory with its two files, still closed to others. While the returned lock lives, no process takes it for abandoned.
fn make_files(new: &Path, tenant: &Tenant, now_ns: u64) -> io::Result<File> {
    DirBuilder::new().mode(0o700).create(new)?;
    let lock = open_directory(new)?;
    sys::try_lock(&lock, Lock::Shared)?;
    let mapped = new_file::<LimitsFile>(&new.join("limits"), 0o644)?;
    limits::fill(&mapped, &tenant.name, &tenant.devices, now_ns);
    let mapped = new_file::<UsageFile>(&new.join("usage"), 0o666)?;
    slots::fill(&mapped);
    Ok(lock)
}

/// A new file of the size of `T`, all zeros, its space reserved: a full disk shows here, and never as a fault later.
fn new_file<T: Mapped>(path: &Path, mode: u32) -> io::Result<Mapping<T>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    sys::reserve_space(&file, size_of::<T>())?;
    permit(path, mode)?;
    Mapping::of_file(&file, true)
}
