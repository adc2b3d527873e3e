//! Memory that other processes can hold too.

use super::Client;
use crate::commit::{CannotCommit, Change};
use crate::core::{Core, ObjectRow};
use crate::shared::Local;
use crate::{Refused, objects};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Memory that more than one process can hold. Never used twice on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(u64);

impl ObjectId {
    /// As a number, to tell another process of this machine.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The object of a number that another process told; it may name no object.
    #[must_use]
    pub const fn of_number(number: u64) -> ObjectId {
        ObjectId(number)
    }
}

/// Facts that a holder learns of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub id: ObjectId,
    /// Where it is.
    pub gpu: usize,
    /// Bytes that it takes there.
    pub bytes: u64,
    /// Tag that its maker gave it.
    pub tag: u64,
}

impl From<&ObjectRow> for Object {
    fn from(row: &ObjectRow) -> Object {
        Object {
            id: ObjectId(row.id),
            gpu: crate::layout::as_index(row.gpu),
            bytes: row.bytes,
            tag: row.tag,
        }
    }
}

/// The bytes of an object stay taken until the last holder in any process has let go or died, and the last exported
/// descriptor is closed. They are in the record of the process that has held the object the longest.
impl Client {
    /// Takes `bytes` of the GPU's memory as an object that this client holds once.
    ///
    /// # Errors
    /// As `take`; `Full`, and `DiskFull` where its file cannot be made.
    pub fn object_create(&self, gpu: usize, bytes: u64, tag: u64) -> Result<ObjectId, Refused> {
        self.next_or_fault(gpu)?;
        let like = ObjectRow {
            gpu: gpu as u64,
            bytes,
            tag,
            ..ObjectRow::default()
        };
        let object = ObjectId(self.claim(gpu, bytes, |core, client| objects::insert(core, client, like))?);
        if self.shared().objects.make(object.0, bytes).is_err() {
            self.object_release(object);
            return Err(Refused::DiskFull);
        }
        Ok(object)
    }

    /// Makes an object, which this client holds once, of bytes that it has taken.
    ///
    /// # Errors
    /// `Gone` where it has not taken so many; `Full`, `DiskFull`.
    pub fn object_make(&self, gpu: usize, bytes: u64, tag: u64) -> Result<ObjectId, Refused> {
        let gpu = gpu as u64;
        let made = self.change(|core| {
            let like = ObjectRow {
                gpu,
                bytes,
                tag,
                ..ObjectRow::default()
            };
            objects::make(core, self.id, like)
        })?;
        let object = ObjectId(made?);
        if self.shared().objects.make(object.0, bytes).is_err() {
            self.object_unmake(object);
            return Err(Refused::DiskFull);
        }
        Ok(object)
    }

    /// Makes an object bytes again that this client has taken, if no other process holds it; else lets go of it, and the
    /// bytes are the other holders'. Says whether they are this client's.
    pub fn object_unmake(&self, object: ObjectId) -> bool {
        // Descriptors that were closed hold nothing.
        let _ = self.shared().end_dead_processes(&mut self.shared().local.lock());
        let is_own = self.change(|core| Ok::<_, Refused>(objects::unmake(core, object.0, self.id)));
        if matches!(is_own, Ok(Ok(true))) {
            self.shared().objects.forget(&[object.0]);
            return true;
        }
        self.object_release(object);
        false
    }

    /// Holds an object once more; `maker` is a client that must still hold it.
    ///
    /// # Errors
    /// `Gone` where no process holds it, or not the maker; `Full`, `DiskFull`.
    pub fn object_hold(&self, object: ObjectId, maker: Option<u64>) -> Result<Object, Refused> {
        // The dead hold nothing.
        self.shared()
            .end_dead_processes(&mut self.shared().local.lock())?;
        let held = self.change(|core| {
            if maker.is_some_and(|maker| core.hold_of(object.0, maker).is_none()) {
                return Err(Refused::Gone);
            }
            objects::hold(core, object.0, self.id)
        })?;
        held.as_ref().map(Object::from).map_err(|refused| *refused)
    }

    /// Lets go of an object once.
    pub fn object_release(&self, object: ObjectId) {
        let gone = self.change(|core| Ok::<_, Refused>(objects::release(core, object.0, self.id, 1)));
        // If the state cannot be written, the hold ends with the process.
        if matches!(gone, Ok(Ok(true))) {
            self.shared().objects.forget(&[object.0]);
        }
    }

    /// Holds memory that came from outside the machine as a file: its bytes are taken with the first hold in any
    /// process, and are one object for all that hold the same file.
    ///
    /// # Errors
    /// As `take`; `Full`, `DiskFull`; `Gone` for a file that cannot be looked at, or that another
    /// process made an object at this moment: to be tried again.
    pub fn object_of_file(&self, file: &File, gpu: usize, bytes: u64, tag: u64) -> Result<Object, Refused> {
        let known = file.metadata().map_err(|_| Refused::Gone)?;
        let key = [known.dev(), known.ino()];
        // A number of a file may be used again after its last holder's death.
        self.shared()
            .end_dead_processes(&mut self.shared().local.lock())?;
        let find = |core: &Core| core.objects.iter().find(|row| row.file == key).map(|row| row.id);
        let like = ObjectRow {
            gpu: gpu as u64,
            bytes,
            tag,
            file: key,
            ..ObjectRow::default()
        };
        let known = self.change(|core| match find(core) {
            Some(object) => objects::hold(core, object, self.id).map(Some),
            None => Ok(None),
        })??;
        if let Some(row) = known {
            return Ok(Object::from(&row));
        }
        self.next_or_fault(gpu)?;
        self.claim(gpu, bytes, |core, client| match find(core) {
            // Another process was faster.
            Some(_) => Err(Refused::Gone),
            None => objects::insert(core, client, like),
        })
        .map(|id| Object::from(&ObjectRow { id, ..like }))
    }

    /// The contents of an object that this client holds; those of a file from outside are that file's.
    ///
    /// # Errors
    /// The system's.
    pub fn object_contents(&self, object: ObjectId) -> io::Result<File> {
        self.shared().objects.open(object.0)
    }

    /// A descriptor that holds the object, which this client holds too, until it and all its duplicates are closed.
    ///
    /// # Errors
    /// The system's.
    pub fn object_export(&self, object: ObjectId) -> io::Result<File> {
        let file = self.shared().objects.export(object.0)?;
        // Marked first: a hold without an open descriptor may be taken away at any time.
        match self.change(|core| objects::hold_by_descriptor(core, object.0)) {
            Ok(Ok(())) => Ok(file),
            _ => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }

    /// The object that a descriptor gives access to.
    #[must_use]
    pub fn object_of_descriptor(&self, file: &File) -> Option<ObjectId> {
        self.shared().objects.find(file).map(ObjectId)
    }

    fn change<R>(
        &self,
        mut operation: impl FnMut(&mut Core) -> Result<R, Refused>,
    ) -> Result<Result<R, Refused>, CannotCommit> {
        let shared = self.shared();
        let local: &mut Local = &mut shared.local.lock();
        shared.transact(local, None, |core| match operation(core) {
            Ok(result) => Change::Made(Ok(result)),
            Err(refused) => Change::None(Err(refused)),
        })
    }
}
