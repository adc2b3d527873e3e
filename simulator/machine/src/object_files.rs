//! Contents of shared objects: one sparse file each, named by the object's number.
//!
//! A file is made after its object is in the core, and nobody opens one whose object is not; so a file without an object
//! is of no use to anybody and can go. Descriptors that leave the machine's care are open file descriptions of their
//! own, each marked by a lock on a byte of the file: the kernel drops it with the last descriptor, also of a message
//! under way.

use crate::sys::{self, lock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// Marks of exported descriptors begin here: far beyond any contents, out of the way of anybody else's locks.
const MARKS: u64 = 1 << 62;

/// Where the files are.
#[derive(Debug)]
pub(crate) struct ObjectFiles(Option<PathBuf>);

impl ObjectFiles {
    /// In a directory, which is made with the first file.
    pub(crate) fn in_directory(path: PathBuf) -> ObjectFiles {
        ObjectFiles(Some(path))
    }

    /// Of a machine in memory: its objects have no contents, and descriptors live on.
    pub(crate) fn none() -> ObjectFiles {
        ObjectFiles(None)
    }

    fn path(&self, object: u64) -> io::Result<PathBuf> {
        let directory = self.0.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        Ok(directory.join(format!("{object:016x}")))
    }

    /// Makes the file of an object that has none.
    pub(crate) fn make(&self, object: u64, bytes: u64) -> io::Result<()> {
        if self.0.is_none() {
            return Ok(());
        }
        let path = self.path(object)?;
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(directory) = path.parent() {
                    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
                }
                options.open(&path)?
            }
            opened => opened?,
        };
        file.set_len(bytes)
    }

    /// The file, opened anew.
    pub(crate) fn open(&self, object: u64) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.path(object)?)
    }

    /// A descriptor to give away.
    pub(crate) fn export(&self, object: u64) -> io::Result<File> {
        let file = self.open(object)?;
        lock::mark(&file, MARKS)?;
        Ok(file)
    }

    /// Whether a descriptor that `export` gave is open anywhere. Unknown counts as open.
    pub(crate) fn has_descriptors(&self, object: u64) -> bool {
        match self.open(object) {
            Ok(file) => lock::is_marked(&file, MARKS),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// The object that an open file is the contents of.
    pub(crate) fn find(&self, file: &File) -> Option<u64> {
        let name = sys::name_of(file)?;
        let object = u64::from_str_radix(name.file_name()?.to_str()?, 16).ok()?;
        let (this, there) = (file.metadata().ok()?, self.path(object).ok()?.metadata().ok()?);
        ((this.dev(), this.ino()) == (there.dev(), there.ino())).then_some(object)
    }

    /// Removes files of objects that are gone.
    pub(crate) fn forget(&self, objects: &[u64]) {
        for path in objects.iter().filter_map(|object| self.path(*object).ok()) {
            // What stays is found by the next sweep.
            let _ = std::fs::remove_file(path);
        }
    }

    /// All objects that have a file. One that is not in a core read later is gone: its process was killed between the
    /// object's end and the file's.
    pub(crate) fn all(&self) -> Vec<u64> {
        let entries = self.0.as_ref().and_then(|path| path.read_dir().ok());
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
