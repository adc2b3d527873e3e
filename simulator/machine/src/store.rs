//! Directory of a machine: `machine.toml`, the state file, the lock file. Each is built under a temporary name and then
//! linked, so a killed process leaves at most a stray file.

use crate::config::{ClockKind, Config, FNV, fnv1a};
use crate::core::Core;
use crate::layout::{
    BIRTH_BUFFER, HEADER_CONFIG, HEADER_MAGIC, HEADER_NAMESPACE, HEADER_VERSION, MAGIC, ROOT, TOTAL_WORDS,
    VERSION, buffer,
};
use crate::liveness::Liveness;
use crate::map::Mapping;
use crate::object_files::ObjectFiles;
use crate::shared::Shared;
use crate::{MachineError, sys};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const CONFIG: &str = "machine.toml";
const STATE: &str = "state";
const LOCKS: &str = "locks";
const OBJECTS: &str = "objects";

/// Makes the machine, or opens an existing one with the same configuration.
pub(crate) fn create(dir: &Path, config: &Config) -> Result<Shared, MachineError> {
    config.validate()?;
    refuse_foreign(dir)?;
    let builder = &mut DirBuilder::new();
    builder.recursive(true).mode(0o700).create(dir).map_err(at("make", dir))?;
    let filled = filled(config, dir);
    let path = dir.join(CONFIG);
    let text = filled.to_toml()?;
    let build = |temporary: &Path| std::fs::write(temporary, &text).map_err(at("write", temporary));
    if !create_atomically(&path, build)? && self::filled(&Config::read(&path)?, dir) != filled {
        return Err(MachineError::State {
            found: "another configuration".into(),
            wanted: "the one asked for, or none".into(),
            path,
        });
    }
    open(dir)
}

/// Opens the machine in `dir`; only its state file may be missing.
pub(crate) fn open(dir: &Path) -> Result<Shared, MachineError> {
    refuse_foreign(dir)?;
    let config = filled(&Config::read(&dir.join(CONFIG))?, dir);
    let path = dir.join(state_name());
    if create_atomically(&path, |temporary| write_state(temporary, &config))? {
        remove_states_of_former_boots(dir);
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(at("open", &path))?;
    let map = map_state(&file, &path)?;
    check_config(&map, &config, &path)?;
    let locks = dir.join(LOCKS);
    let liveness = Liveness::open(&locks).map_err(at("open", &locks))?;
    let objects = ObjectFiles::in_directory(dir.join(objects_name()));
    Ok(Shared::new(map, Some(file), config, liveness, objects))
}

/// Name of the state file, which differs after each start of the computer, as the clock restarts and no process survives.
fn state_name() -> String {
    format!("{STATE}.{:016x}", boot())
}

/// Name of the directory of objects' contents, which belongs to the state.
fn objects_name() -> String {
    format!("{OBJECTS}.{:016x}", boot())
}

fn boot() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    fnv1a(FNV, &id)
}

fn remove_states_of_former_boots(dir: &Path) {
    let (current, objects) = (state_name(), objects_name());
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("state.") && !name.starts_with(&current) {
            // A file that is no longer needed; if it cannot be removed, it stays.
            let _ = std::fs::remove_file(entry.path());
        }
        if name.starts_with("objects.") && *name != *objects {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Opens the machine in `dir`, made with default values if there is none.
pub(crate) fn open_or_create(dir: &Path) -> Result<Shared, MachineError> {
    if dir.join(CONFIG).exists() { open(dir) } else { create(dir, &Config::default()) }
}

/// A machine of this process alone.
pub(crate) fn in_memory(mut config: Config) -> Result<Shared, MachineError> {
    config.validate()?;
    config.fill(b"memory");
    let map = Mapping::in_memory(TOTAL_WORDS).map_err(at("map", Path::new("memory")))?;
    write_birth(&map, &config);
    Ok(Shared::new(map, None, config, Liveness::in_memory(), ObjectFiles::none()))
}

/// Refuses a directory under `/tmp` that is not this user's, as any user can make one of that name.
fn refuse_foreign(dir: &Path) -> Result<(), MachineError> {
    let (shared, user) = (Path::new("/tmp"), sys::user_id());
    let own = shared.join(format!("vcuda-{user}"));
    if !dir.starts_with(&own) || belongs_to(&own, user) {
        return Ok(());
    }
    Err(at("trust", &own)(io::Error::new(io::ErrorKind::PermissionDenied, "it is another user's")))
}

/// Whether `path` is a directory of the user, or does not exist.
fn belongs_to(path: &Path, user: u32) -> bool {
    path.symlink_metadata().map_or(true, |there| there.is_dir() && there.uid() == user)
}

fn filled(config: &Config, dir: &Path) -> Config {
    let mut config = config.clone();
    let seed = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    config.fill(seed.as_os_str().as_bytes());
    config
}

/// Makes `path` with the content from `build`, atomically, unless it exists. Returns whether it is new.
fn create_atomically(
    path: &Path,
    build: impl FnOnce(&Path) -> Result<(), MachineError>,
) -> Result<bool, MachineError> {
    if path.exists() {
        return Ok(false);
    }
    let temporary = temporary_name(path);
    let linked = build(&temporary).and_then(|()| match std::fs::hard_link(&temporary, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(at("make", path)(error)),
    });
    let _ = std::fs::remove_file(&temporary);
    linked
}

/// A name unique among processes. Processes of two PID namespaces may share PID and directory, but not the time too.
fn temporary_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}", std::process::id(), sys::monotonic_ns()));
    PathBuf::from(name)
}

/// Gives all users the owner's rights to a file or directory of the machine. Access to the machine's directory decides who
/// can use them: it is the owner's alone unless made otherwise, as for pods of several users.
pub(crate) fn share(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.mode() & 0o777;
    let owner = mode & 0o700;
    let shared = owner | (owner >> 3) | (owner >> 6);
    match mode == shared {
        true => Ok(()),
        false => file.set_permissions(Permissions::from_mode(shared)),
    }
}

fn write_state(path: &Path, config: &Config) -> Result<(), MachineError> {
    let options = &mut OpenOptions::new();
    let file =
        options.read(true).write(true).create_new(true).mode(0o600).open(path).map_err(at("make", path))?;
    share(&file).map_err(at("share", path))?;
    file.set_len(TOTAL_WORDS as u64 * 8).map_err(at("size", path))?;
    sys::reserve(&file, 0, 4096).map_err(at("reserve space for", path))?;
    sys::reserve(&file, buffer(BIRTH_BUFFER) as u64 * 8, 32_768).map_err(at("reserve space for", path))?;
    write_birth(&Mapping::of_file(&file, TOTAL_WORDS).map_err(at("map", path))?, config);
    Ok(())
}

/// Writes the header and first core of a new machine.
fn write_birth(map: &Mapping, config: &Config) {
    let now = match config.clock {
        ClockKind::Real => sys::monotonic_ns(),
        ClockKind::Virtual => 0,
    };
    let mut words = Vec::new();
    Core::new(config.gpus.len(), now).encode(&mut words);
    for (word, value) in (buffer(BIRTH_BUFFER)..).zip(words) {
        map.store(word, value);
    }
    map.store(HEADER_VERSION, VERSION);
    map.store(HEADER_CONFIG, fingerprint(config));
    map.store(HEADER_NAMESPACE, crate::namespaces::own());
    map.store(HEADER_MAGIC, MAGIC);
    map.publish(ROOT, 1 << 16 | BIRTH_BUFFER);
}

fn map_state(file: &File, path: &Path) -> Result<Mapping, MachineError> {
    let wrong = |found: String| MachineError::State {
        path: path.to_owned(),
        found,
        wanted: format!("a machine's state of version {VERSION}"),
    };
    let length = file.metadata().map_err(at("read", path))?.len();
    if length != TOTAL_WORDS as u64 * 8 {
        return Err(wrong(format!("{length} bytes instead of {}", TOTAL_WORDS * 8)));
    }
    let map = Mapping::of_file(file, TOTAL_WORDS).map_err(at("map", path))?;
    if map.load(HEADER_MAGIC) != MAGIC {
        return Err(wrong("something else".into()));
    }
    match map.load(HEADER_VERSION) {
        VERSION => Ok(map),
        other => Err(wrong(format!("a state of version {other}"))),
    }
}

fn check_config(map: &Mapping, config: &Config, path: &Path) -> Result<(), MachineError> {
    if map.load(HEADER_CONFIG) == fingerprint(config) {
        return Ok(());
    }
    Err(MachineError::State {
        path: path.to_owned(),
        found: "the state of a machine of other GPUs, slices or clock than machine.toml has now".into(),
        wanted: "the machine of machine.toml".into(),
    })
}

/// Hash of the settings that all processes of a machine must share.
fn fingerprint(config: &Config) -> u64 {
    let rules = (
        config.clock,
        config.slice_ns,
        config.switch_ns,
        config.sample_ns,
        config.granularity_bytes,
        config.driver.slice_order,
        config.driver.slice_spread_permille,
        config.driver.release_delay_ns,
        config.driver.child_keeps_memory,
        config.driver.memory_limits,
        config.driver.memory_limits_need_mps,
    );
    let gpus: Vec<_> = config.gpus.iter().map(|gpu| (&gpu.uuid, gpu.memory_bytes, gpu.sms)).collect();
    fnv1a(FNV, format!("{rules:?}{gpus:?}").as_bytes())
}

fn at(action: &'static str, path: &Path) -> impl Fn(io::Error) -> MachineError {
    move |source| MachineError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_another_user_is_not_trusted() {
        let base = std::env::temp_dir().join(format!("vcuda-owner-{}", std::process::id()));
        std::fs::create_dir(&base).unwrap();
        let (link, user) = (base.join("link"), sys::user_id());
        std::os::unix::fs::symlink(&base, &link).unwrap();
        assert!(belongs_to(&base, user) && belongs_to(&base.join("missing"), user));
        assert!(!belongs_to(&base, user + 1) && !belongs_to(&link, user));
        std::fs::remove_dir_all(&base).unwrap();
    }
}
