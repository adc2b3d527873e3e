//! Memory objects that several processes can hold: the effect of holds and releases. Pure functions on a core.
//!
//! An object's bytes count once on its GPU while any process holds it. They are in the row of the process that has held it
//! the longest, at first its maker. When that process releases it or dies, the same commit moves them to the next holder.
//! While only exported descriptors hold the object, its bytes are in no row.

use crate::Refused;
use crate::client::{give_back, use_row};
use crate::core::{Core, DESCRIPTORS, HoldRow, INHERITED, ObjectRow, RELEASING};
use crate::layout::{HOLDS, OBJECTS, as_index};

impl HoldRow {
    /// Whether the holder is a process.
    fn is_of_process(&self) -> bool {
        ![DESCRIPTORS, RELEASING, INHERITED].contains(&self.client)
    }
}

impl Core {
    /// The row of an existing object.
    pub(crate) fn object(&self, id: u64) -> Option<&ObjectRow> {
        let position = self.objects.binary_search_by_key(&id, |row| row.id).ok()?;
        self.objects.get(position)
    }

    /// The client whose row has the object's bytes.
    fn owner(&self, object: u64) -> Option<u64> {
        let is_process = |row: &&HoldRow| row.object == object && row.is_of_process();
        self.holds.iter().find(is_process).map(|row| row.client)
    }

    fn position_of_hold(&self, object: u64, client: u64) -> Option<usize> {
        let is_it = |row: &HoldRow| row.object == object && row.client == client;
        self.holds.iter().position(is_it)
    }

    pub(crate) fn hold_of(&self, object: u64, client: u64) -> Option<&HoldRow> {
        self.holds.get(self.position_of_hold(object, client)?)
    }

    /// Sum of the objects' bytes on a GPU that are in the row of `owner`, or in none.
    pub(crate) fn objects_of(&self, owner: Option<u64>, gpu: u64) -> u64 {
        if self.objects.is_empty() {
            return 0;
        }
        let rows = self.objects.iter().zip(self.owners());
        rows.filter(|(row, of)| row.gpu == gpu && *of == owner)
            .fold(0, |sum, (row, _)| sum.saturating_add(row.bytes))
    }

    /// Owner of each object, in one pass.
    fn owners(&self) -> Vec<Option<u64>> {
        let mut owners = vec![None; self.objects.len()];
        for hold in self.holds.iter().filter(|hold| hold.is_of_process()) {
            if let Ok(position) = self.objects.binary_search_by_key(&hold.object, |row| row.id)
                && let Some(owner) = owners.get_mut(position)
            {
                owner.get_or_insert(hold.client);
            }
        }
        owners
    }

    /// Whether all invariants of objects hold.
    pub(crate) fn check_objects(&self) -> bool {
        let is_whole = |hold: &HoldRow| {
            let is_client = self.clients.iter().any(|row| row.id == hold.client);
            self.object(hold.object).is_some() && hold.count > 0 && (is_client || !hold.is_of_process())
        };
        let mut held: Vec<u64> = self.holds.iter().map(|hold| hold.object).collect();
        held.sort_unstable();
        let is_right = |row: &ObjectRow| {
            as_index(row.gpu) < self.gpus.len()
                && row.id < self.next_object
                && held.binary_search(&row.id).is_ok()
        };
        self.objects.len() <= OBJECTS
            && self.holds.len() <= HOLDS
            && self.objects.is_sorted_by_key(|row| row.id)
            && self.objects.iter().all(is_right)
            && self.holds.iter().all(is_whole)
    }
}

/// Makes an object of bytes that are already in the client's row.
pub(crate) fn make(core: &mut Core, client: u64, like: ObjectRow) -> Result<u64, Refused> {
    let position = core.position_of_use(client, like.gpu);
    let used = position.and_then(|position| core.uses.get(position)).map_or(0, |row| row.used);
    if like.bytes > used.saturating_sub(core.objects_of(Some(client), like.gpu)) {
        return Err(Refused::Gone);
    }
    insert(core, client, like)
}

/// Makes an object. The caller adds its bytes to the client's row in the same commit.
pub(crate) fn insert(core: &mut Core, client: u64, like: ObjectRow) -> Result<u64, Refused> {
    if core.objects.len() >= OBJECTS || core.holds.len() >= HOLDS {
        return Err(Refused::Full("shared objects"));
    }
    let id = core.next_object;
    core.next_object += 1;
    core.objects.push(ObjectRow { id, ..like });
    core.holds.push(HoldRow { object: id, client, count: 1 });
    Ok(id)
}

/// Adds a hold of a client.
pub(crate) fn hold(core: &mut Core, object: u64, client: u64) -> Result<ObjectRow, Refused> {
    let row = *core.object(object).ok_or(Refused::Gone)?;
    use_row(core, client, row.gpu)?;
    let before = core.owner(object);
    add(core, object, client)?;
    pass_on(core, &row, before);
    Ok(row)
}

/// Records that descriptors hold the object.
pub(crate) fn hold_by_descriptor(core: &mut Core, object: u64) -> Result<(), Refused> {
    core.object(object).ok_or(Refused::Gone)?;
    add(core, object, DESCRIPTORS)
}

fn add(core: &mut Core, object: u64, client: u64) -> Result<(), Refused> {
    if let Some(position) = core.position_of_hold(object, client)
        && let Some(row) = core.holds.get_mut(position)
    {
        row.count += 1;
        return Ok(());
    }
    if core.holds.len() >= HOLDS {
        return Err(Refused::Full("shared objects"));
    }
    core.holds.push(HoldRow { object, client, count: 1 });
    Ok(())
}

/// Ends `count` holds of a holder. Returns whether the object is removed.
pub(crate) fn release(core: &mut Core, object: u64, client: u64, count: u64) -> bool {
    let Some(row) = core.object(object).copied() else {
        return false;
    };
    let Some(position) = core.position_of_hold(object, client) else {
        return false;
    };
    let before = core.owner(object);
    if let Some(hold) = core.holds.get_mut(position).filter(|hold| hold.count > count) {
        hold.count -= count;
        return false;
    }
    core.holds.remove(position);
    if core.holds.iter().any(|hold| hold.object == object) {
        pass_on(core, &row, before);
        return false;
    }
    core.objects.retain(|other| other.id != object);
    match before {
        Some(owner) => give_back(core, owner, row.gpu, row.bytes),
        None => change_gpu(core, row.gpu, row.bytes),
    }
    true
}

/// Turns the object into plain memory of the client, if that holds it alone and once. Returns whether it did.
pub(crate) fn unmake(core: &mut Core, object: u64, client: u64) -> bool {
    let mut holds = core.holds.iter().filter(|hold| hold.object == object);
    let is_alone =
        holds.next().is_some_and(|hold| hold.client == client && hold.count == 1) && holds.next().is_none();
    if is_alone {
        core.holds.retain(|hold| hold.object != object);
        core.objects.retain(|row| row.id != object);
    }
    is_alone
}

/// Ends all holds of a client. Returns the removed objects.
pub(crate) fn release_all(core: &mut Core, client: u64) -> Vec<u64> {
    let held = core.holds.iter().filter(|hold| hold.client == client);
    let held: Vec<u64> = held.map(|hold| hold.object).collect();
    held.into_iter().filter(|object| release(core, *object, client, u64::MAX)).collect()
}

/// Moves the object's bytes from the previous owner's row to the present owner's. The GPU's sum is unchanged.
fn pass_on(core: &mut Core, row: &ObjectRow, before: Option<u64>) {
    let after = core.owner(row.id);
    if before == after {
        return;
    }
    if let Some(position) = before.and_then(|client| core.position_of_use(client, row.gpu))
        && let Some(from) = core.uses.get_mut(position)
    {
        from.used -= row.bytes.min(from.used);
        from.managed = from.managed.min(from.used);
    }
    // A holder has had a row since its first hold.
    if let Some(position) = after.and_then(|client| core.position_of_use(client, row.gpu))
        && let Some(to) = core.uses.get_mut(position)
    {
        to.used += row.bytes;
        to.peak = to.peak.max(to.used);
    }
}

fn change_gpu(core: &mut Core, gpu: u64, bytes: u64) {
    if let Some(row) = core.gpus.get_mut(as_index(gpu)) {
        row.used -= bytes.min(row.used);
    }
}
