//! Contents of shared objects: one sparse file each, named by the object's number. And the *control file*, of which each
//! exported descriptor is an opening.
//!
//! A file is made after its object is in the core, and no process opens one whose object is not; so a file without an object
//! is of no use and can go.
//!
//! Descriptors that leave the machine's care are open file descriptions of the control file, as a real driver's are of
//! its control device `/dev/nvidiactl`: one inode for all objects, and a private note in the kernel of what each stands
//! for. Here the note is the description's position in the file, which is the object's number; and a read lock on a byte
//! of that number, which the kernel drops with the last descriptor, also of a message under way. All files are opened by
//! the directory's descriptor: a process that has changed its root since finds them too.

use crate::sys::{self, lock};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The locks of exported descriptors begin here: far beyond any contents, out of the way of other locks.
const MARKS: u64 = 1 << 61;
/// The locks of the descriptors that each process has of the driver itself, by client.
const DRIVERS: u64 = 1 << 62;
/// The name of the control file.
const CONTROL: &str = "control";

/// Where the files are.
#[derive(Debug)]
pub(crate) struct ObjectFiles {
    /// None: of a machine in memory.
    path: Option<PathBuf>,
    opened: OnceLock<Opened>,
}

/// The directory and its control file, held open from the first use on.
#[derive(Debug)]
struct Opened {
    directory: File,
    control: File,
}

impl Opened {
    fn at(path: &Path) -> io::Result<Opened> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let directory = File::open(path)?;
        let control = sys::open_in(&directory, CONTROL, libc::O_RDWR | libc::O_CREAT)?;
        // Of another user, they are shared already.
        let _ = crate::store::share(&directory).and_then(|()| crate::store::share(&control));
        Ok(Opened { directory, control })
    }
}

impl ObjectFiles {
    /// In a directory, which is made with its first use.
    pub(crate) fn in_directory(path: PathBuf) -> ObjectFiles {
        ObjectFiles {
            path: Some(path),
            opened: OnceLock::new(),
        }
    }

    /// Files of a machine in memory: its objects have no contents, and descriptors live on.
    pub(crate) fn none() -> ObjectFiles {
        ObjectFiles {
            path: None,
            opened: OnceLock::new(),
        }
    }

    /// Opens the directory and the control file, as a process does that begins to use the driver.
    fn opened(&self) -> io::Result<&Opened> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = Opened::at(self.path.as_ref().ok_or(io::ErrorKind::Unsupported)?)?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Opens what [`ObjectFiles::export`] and others need, while the machine's directory can be reached. What fails here
    /// is tried again when it is needed.
    pub(crate) fn prepare(&self) {
        let _ = self.opened();
    }

    /// Makes the file of an object that has none.
    pub(crate) fn make(&self, object: u64, bytes: u64) -> io::Result<()> {
        if self.path.is_none() {
            return Ok(());
        }
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let file = sys::open_in(&self.opened()?.directory, &name(object), flags)?;
        crate::store::share(&file)?;
        file.set_len(bytes)
    }

    /// The file, opened anew.
    pub(crate) fn open(&self, object: u64) -> io::Result<File> {
        sys::open_in(&self.opened()?.directory, &name(object), libc::O_RDWR)
    }

    /// A descriptor to give away.
    pub(crate) fn export(&self, object: u64) -> io::Result<File> {
        let file = sys::open_in(&self.opened()?.directory, CONTROL, libc::O_RDWR)?;
        lock::share(&file, MARKS + object)?;
        sys::set_position(&file, object)?;
        Ok(file)
    }

    /// The descriptor that a client has of the driver for as long as it lives, as of a real driver's `/dev/nvidiactl`: closed on
    /// `exec`, and inherited by a child that calls none.
    pub(crate) fn open_driver(&self, client: u64) -> io::Result<File> {
        let file = sys::open_in(&self.opened()?.directory, CONTROL, libc::O_RDWR)?;
        lock::share(&file, DRIVERS + client)?;
        Ok(file)
    }

    /// Whether a descriptor that [`ObjectFiles::open_driver`] gave is open anywhere.
    pub(crate) fn is_driver_open(&self, client: u64) -> bool {
        self.opened()
            .is_ok_and(|opened| lock::is_held(&opened.control, DRIVERS + client))
    }

    /// Whether a descriptor that `export` gave is open anywhere. Unknown counts as open.
    pub(crate) fn has_descriptors(&self, object: u64) -> bool {
        self.opened()
            .is_ok_and(|opened| lock::is_held(&opened.control, MARKS + object))
    }

    /// The object that an exported descriptor stands for.
    pub(crate) fn find(&self, file: &File) -> Option<u64> {
        let (this, control) = (
            file.metadata().ok()?,
            self.opened().ok()?.control.metadata().ok()?,
        );
        if (this.dev(), this.ino()) != (control.dev(), control.ino()) {
            return None;
        }
        // A descriptor of the control file that was not exported stands at its beginning, and object 0 is never made.
        sys::position(file).ok().filter(|object| *object > 0)
    }

    /// Removes files of objects that are gone.
    pub(crate) fn forget(&self, objects: &[u64]) {
        let Ok(opened) = self.opened() else { return };
        for object in objects {
            // What stays is found by the next sweep.
            let _ = sys::remove_in(&opened.directory, &name(*object));
        }
    }

    /// All objects that have a file. One that is not in a core read later is gone: its process was killed between the
    /// object's end and the file's.
    pub(crate) fn all(&self) -> Vec<u64> {
        let entries = self.path.as_ref().and_then(|path| path.read_dir().ok());
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        names
            .filter_map(|name| u64::from_str_radix(name.to_str()?, 16).ok())
            .collect()
    }
}

/// An object's file.
fn name(object: u64) -> String {
    format!("{object:016x}")
}
