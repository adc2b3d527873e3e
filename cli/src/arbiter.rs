//! `vcuda arbiter`: apportions GPU time between the tenants of one user. One per user (`flock`); ends with the last
//! tenant.

use std::fs::File;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use vcuda_region::directory;

use crate::config::Environment;
use crate::failure::{Failure, failed};

/// Runs until no tenant is left. A second one ends at once.
pub(crate) fn arbiter(environment: &Environment) -> Result<(), Failure> {
    let root = environment.runtime_root()?;
    let Some(_lock) = lock(&root)? else { return Ok(()) };
    while !directory::list(&root).map_err(failed)?.is_empty() {
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Whether one holds the lock. It may end right after the answer: the shims notice a missing beat.
pub(crate) fn is_running(root: &Path) -> bool {
    matches!(lock(root), Ok(None))
}

fn lock(root: &Path) -> Result<Option<Flock<File>>, Failure> {
    let path = root.join("arbiter.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let file = file.map_err(|error| Failure::access("open", &path, &error))?;
    Ok(Flock::lock(file, FlockArg::LockExclusiveNonblock).ok())
}
