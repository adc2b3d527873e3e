//! Contents of shared objects: one sparse file each, named by the object's number. Also the *control file*, which exported
//! descriptors refer to.
//!
//! A file is made after its object is in the core, and opened only while it is there. A file without an object is therefore
//! garbage.
//!
//! An exported descriptor is an open file description of the control file, as a real driver's is of `/dev/nvidiactl`: one
//! inode for all objects, with private state in the kernel. Here that state is the file position, which is the object's
//! number, and a read lock on the byte of that number. The kernel drops the lock with the last descriptor, even one in a
//! message. All files are opened relative to the directory's descriptor, so that a process that changed its root finds
//! them.
//!
//! The descriptor of an address range, a dma-buf on a real driver, can be polled, and is no file that could be opened anew
//! (docs/hardware.md, "descriptors of address ranges"). Here it is an opening of a named pipe, with that lock.

use crate::sys::{self, lock};
use nix::fcntl::OFlag;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// First byte for the locks of exported descriptors, beyond any contents and other locks.
const MARKS: u64 = 1 << 61;
/// First byte for the locks of the processes' descriptors of the driver, by client.
const DRIVERS: u64 = 1 << 62;
const CONTROL: &str = "control";
const RANGES: &str = "ranges";

#[derive(Debug)]
pub(crate) struct ObjectFiles {
    /// The directory; `None` for a machine in memory.
    path: Option<PathBuf>,
    opened: OnceLock<Opened>,
}

/// The directory, its control file and its pipe, open since the first use.
#[derive(Debug)]
struct Opened {
    directory: File,
    control: File,
    ranges: File,
}

impl Opened {
    fn at(path: &Path) -> io::Result<Opened> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let directory = File::open(path)?;
        let control = sys::open_in(&directory, CONTROL, OFlag::O_RDWR | OFlag::O_CREAT)?;
        let ranges = sys::open_pipe_in(&directory, RANGES)?;
        // Another user's are shared already.
        let files = [&directory, &control, &ranges];
        let _ = files.into_iter().try_for_each(crate::store::share);
        Ok(Opened { directory, control, ranges })
    }
}

impl ObjectFiles {
    /// Files in a directory, which is made at the first use.
    pub(crate) fn in_directory(path: PathBuf) -> ObjectFiles {
        ObjectFiles { path: Some(path), opened: OnceLock::new() }
    }

    /// No files, for a machine in memory: objects have no contents, and descriptors never close.
    pub(crate) fn none() -> ObjectFiles {
        ObjectFiles { path: None, opened: OnceLock::new() }
    }

    /// Opens the directory and the control file at the first use.
    fn opened(&self) -> io::Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = Opened::at(self.path.as_ref().ok_or(io::ErrorKind::Unsupported)?)?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Opens the files while the machine's directory is reachable. A failure is ignored, as each use tries again.
    pub(crate) fn prepare(&self) {
        let _ = self.opened();
    }

    /// Makes the file of an object that has none.
    pub(crate) fn make(&self, object: u64, bytes: u64) -> io::Result<()> {
        if self.path.is_none() {
            return Ok(());
        }
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        let file = sys::open_in(&self.opened()?.directory, &name(object), flags)?;
        crate::store::share(&file)?;
        file.set_len(bytes)
    }

    /// A new descriptor of the object's file.
    pub(crate) fn open(&self, object: u64) -> io::Result<File> {
        sys::open_in(&self.opened()?.directory, &name(object), OFlag::O_RDWR)
    }

    pub(crate) fn export(&self, object: u64) -> io::Result<File> {
        let file = sys::open_in(&self.opened()?.directory, CONTROL, OFlag::O_RDWR)?;
        lock::share(&file, MARKS + object)?;
        sys::set_position(&file, object)?;
        Ok(file)
    }

    /// A descriptor that keeps the object, and that no process can import.
    pub(crate) fn export_range(&self, object: u64) -> io::Result<File> {
        let file = sys::open_in(&self.opened()?.directory, RANGES, OFlag::O_RDWR)?;
        lock::share(&file, MARKS + object)?;
        Ok(file)
    }

    /// A client's descriptor of the driver, as a real driver's of `/dev/nvidiactl`: closed on `exec`, inherited by a child
    /// without `exec`.
    pub(crate) fn open_driver(&self, client: u64) -> io::Result<File> {
        let file = sys::open_in(&self.opened()?.directory, CONTROL, OFlag::O_RDWR)?;
        lock::share(&file, DRIVERS + client)?;
        Ok(file)
    }

    /// Whether the descriptor from [`ObjectFiles::open_driver`] is open in any process.
    pub(crate) fn is_driver_open(&self, client: u64) -> bool {
        self.opened().is_ok_and(|opened| lock::is_held(&opened.control, DRIVERS + client))
    }

    /// Whether a descriptor from `export` or `export_range` is open in any process. Unknown counts as open.
    pub(crate) fn has_descriptors(&self, object: u64) -> bool {
        self.opened().is_ok_and(|opened| {
            [&opened.control, &opened.ranges].into_iter().any(|file| lock::is_held(file, MARKS + object))
        })
    }

    /// The object that an exported descriptor refers to.
    pub(crate) fn find(&self, file: &File) -> Option<u64> {
        let (this, control) = (file.metadata().ok()?, self.opened().ok()?.control.metadata().ok()?);
        if (this.dev(), this.ino()) != (control.dev(), control.ino()) {
            return None;
        }
        // Other descriptors of the control file are at position 0, and no object has number 0.
        sys::position(file).ok().filter(|object| *object > 0)
    }

    /// Removes the files of removed objects.
    pub(crate) fn forget(&self, objects: &[u64]) {
        let Ok(opened) = self.opened() else { return };
        for object in objects {
            // A later sweep removes what is left.
            let _ = sys::remove_in(&opened.directory, &name(*object));
        }
    }

    /// All objects with a file. One that is not in a core read later was removed: its process was killed before it could
    /// remove the file.
    pub(crate) fn all(&self) -> Vec<u64> {
        let entries = self.path.as_ref().and_then(|path| path.read_dir().ok());
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter_map(|name| u64::from_str_radix(name.to_str()?, 16).ok()).collect()
    }
}

fn name(object: u64) -> String {
    format!("{object:016x}")
}
