//! `limits` for a program that reads them again and again, and neither maps nor writes them.

use core::mem::offset_of;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Limits, OpenError};
use crate::layout::LimitsFile;
use crate::open::{check, open_checked};

/// A tenant's `limits`, kept open.
#[derive(Debug)]
pub struct LimitsReader {
    path: PathBuf,
    file: File,
    limits: Limits,
}

impl LimitsReader {
    /// Opens `limits` in `directory`.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("limits");
        let file = open_checked::<LimitsFile>(&path, false)?;
        let limits = Limits::copied(&path, &file)?;
        Ok(Self { path, file, limits })
    }

    /// The values read last.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reads the file if one word of it says that it was written since. Returns whether it was.
    ///
    /// # Errors
    /// Fails as [`Limits::open`]; the known values stay.
    pub fn refresh(&mut self) -> Result<bool, OpenError> {
        let mut word = [0; 8];
        let at = offset_of!(LimitsFile, generation) as u64;
        let read = self.file.read_exact_at(&mut word, at);
        read.map_err(|error| OpenError::Io(self.path.clone(), error))?;
        if u64::from_ne_bytes(word) == self.limits.generation() {
            return Ok(false);
        }
        self.reread().map(|()| true)
    }

    /// Reads and checks the whole file.
    pub fn reread(&mut self) -> Result<(), OpenError> {
        check::<LimitsFile>(&self.path, &self.file)?;
        self.limits = Limits::copied(&self.path, &self.file)?;
        Ok(())
    }

    /// Device and inode of the file, which identify it in a container too, whatever its path there.
    ///
    /// # Errors
    /// The file system does not say.
    pub fn inode(&self) -> std::io::Result<(u64, u64)> {
        let found = self.file.metadata()?;
        Ok((found.dev(), found.ino()))
    }
}
