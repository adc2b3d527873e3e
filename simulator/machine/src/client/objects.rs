//! Memory objects that several processes can hold.

use super::Client;
use crate::commit::{CannotCommit, Change};
use crate::core::{Core, ObjectRow};
use crate::shared::Local;
use crate::{Refused, objects};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Id of such an object, never reused on one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(u64);

impl ObjectId {
    /// The id as a number, for other processes of this machine.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The id with this number, which need not exist.
    pub const fn of_number(number: u64) -> ObjectId {
        ObjectId(number)
    }
}

/// Facts about an object for its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Its name.
    pub id: ObjectId,
    /// Position of the GPU that it is on.
    pub gpu: usize,
    /// Size there (bytes).
    pub bytes: u64,
    /// Tag given by its maker.
    pub tag: u64,
}

impl From<&ObjectRow> for Object {
    fn from(row: &ObjectRow) -> Object {
        Object { id: ObjectId(row.id), gpu: crate::layout::as_index(row.gpu), bytes: row.bytes, tag: row.tag }
    }
}

/// The bytes of an object stay taken until the last holder has released it or died, and the last exported descriptor is
/// closed. They count for the process that has held the object the longest.
impl Client {
    /// Allocates an object of `bytes`, which this client holds once. Errors: as `take`; `Full`; `DiskFull` if its file
    /// cannot be made.
    pub fn object_create(&self, gpu: usize, bytes: u64, tag: u64) -> Result<ObjectId, Refused> {
        self.next_or_fault(gpu)?;
        let like = ObjectRow { gpu: gpu as u64, bytes, tag, ..ObjectRow::default() };
        let object = ObjectId(self.claim(gpu, bytes, |core, client| objects::insert(core, client, like))?);
        if self.shared().objects.make(object.0, bytes).is_err() {
            self.object_release(object);
            return Err(Refused::DiskFull);
        }
        Ok(object)
    }

    /// Turns bytes that this client has taken into an object that it holds once. Errors: `Gone` if it has not taken so
    /// many; `Full`, `DiskFull`.
    pub fn object_make(&self, gpu: usize, bytes: u64, tag: u64) -> Result<ObjectId, Refused> {
        let gpu = gpu as u64;
        let made = self.change(|core| {
            let like = ObjectRow { gpu, bytes, tag, ..ObjectRow::default() };
            objects::make(core, self.id, like)
        })?;
        let object = ObjectId(made?);
        if self.shared().objects.make(object.0, bytes).is_err() {
            self.object_unmake(object);
            return Err(Refused::DiskFull);
        }
        Ok(object)
    }

    /// Releases an object once. If no other process holds it, its bytes become this client's plain memory again. Returns
    /// whether they did.
    pub fn object_unmake(&self, object: ObjectId) -> bool {
        // Closed descriptors no longer hold the object.
        let _ = self.shared().end_dead_processes(&mut self.shared().local.lock());
        let is_own = self.change(|core| Ok::<_, Refused>(objects::unmake(core, object.0, self.id)));
        if matches!(is_own, Ok(Ok(true))) {
            self.shared().objects.forget(&[object.0]);
            return true;
        }
        self.object_release(object);
        false
    }

    /// Adds a hold on an object; a given `maker` must be a client that still holds it. Errors: `Gone` if no process, or
    /// not the maker, holds it; `Full`, `DiskFull`.
    pub fn object_hold(&self, object: ObjectId, maker: Option<u64>) -> Result<Object, Refused> {
        // Dead processes no longer hold the object.
        self.shared().end_dead_processes(&mut self.shared().local.lock())?;
        let held = self.change(|core| {
            if maker.is_some_and(|maker| core.hold_of(object.0, maker).is_none()) {
                return Err(Refused::Gone);
            }
            objects::hold(core, object.0, self.id)
        })?;
        held.as_ref().map(Object::from).map_err(|refused| *refused)
    }

    /// Releases a hold on an object.
    pub fn object_release(&self, object: ObjectId) {
        let gone = self.change(|core| Ok::<_, Refused>(objects::release(core, object.0, self.id, 1)));
        // If the state cannot be written, the hold ends with the process.
        if matches!(gone, Ok(Ok(true))) {
            self.shared().objects.forget(&[object.0]);
        }
    }

    /// Holds memory that comes from outside the machine as a file. Its bytes are taken with the first hold in any
    /// process; all holders of the same file share one object. Errors: as `take`; `Full`, `DiskFull`; `Gone` for an
    /// unreadable file, or if another process made the object at this moment, in which case the call must be repeated.
    pub fn object_of_file(&self, file: &File, gpu: usize, bytes: u64, tag: u64) -> Result<Object, Refused> {
        let known = file.metadata().map_err(|_| Refused::Gone)?;
        let key = [known.dev(), known.ino()];
        // A file's number may be reused after the death of its last holder.
        self.shared().end_dead_processes(&mut self.shared().local.lock())?;
        let find = |core: &Core| core.objects.iter().find(|row| row.file == key).map(|row| row.id);
        let like = ObjectRow { gpu: gpu as u64, bytes, tag, file: key, ..ObjectRow::default() };
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

    /// Contents of an object that this client holds; for a file from outside, that file.
    pub fn object_contents(&self, object: ObjectId) -> io::Result<File> {
        self.shared().objects.open(object.0)
    }

    /// A descriptor that keeps the object held until it and all its duplicates are closed. This client must hold the
    /// object.
    pub fn object_export(&self, object: ObjectId) -> io::Result<File> {
        self.keep_by(object, self.shared().objects.export(object.0)?)
    }

    /// As [`Client::object_export`], of an address range: no process can import it.
    pub fn object_export_range(&self, object: ObjectId) -> io::Result<File> {
        self.keep_by(object, self.shared().objects.export_range(object.0)?)
    }

    fn keep_by(&self, object: ObjectId, file: File) -> io::Result<File> {
        // Recorded first, as a hold without an open descriptor may be removed at any time.
        match self.change(|core| objects::hold_by_descriptor(core, object.0)) {
            Ok(Ok(())) => Ok(file),
            _ => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }

    /// The object that a descriptor refers to.
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
