//! Attribution of a process to a tenant: by its registration or slot, else by its mapped files, its root or its
//! environment.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, lstat, open, openat2};
use vcuda_region::directory::{self, ENV_DIRECTORY, MANAGED};
use vcuda_region::process;

use super::deleted::{self, DeletedFiles};
use super::findings::Owner;
use crate::observe::Snapshot;

#[derive(Debug)]
pub(crate) struct Attribution {
    root: PathBuf,
    /// Tenants by device and inode of `limits`, whatever path leads there.
    by_limits: HashMap<(u64, u64), String>,
    deleted: DeletedFiles,
    by_pid: HashMap<u32, (bool, Owner)>,
}

impl Attribution {
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            deleted: DeletedFiles::new(root),
            by_limits: HashMap::new(),
            by_pid: HashMap::new(),
        }
    }

    /// Replaces the facts by those of a new snapshot.
    pub(crate) fn refresh(&mut self, snapshot: &Snapshot) {
        self.by_limits.clear();
        self.by_pid.clear();
        let mut files = BTreeSet::new();
        for tenant in &snapshot.tenants {
            let directory = directory::locate(&self.root, &tenant.id);
            for name in ["limits", "usage"] {
                if let Ok(found) = lstat(directory.join(name)) {
                    let file = (found.st_dev, found.st_ino);
                    files.insert((file, tenant.id.clone()));
                    if name == "limits" {
                        self.by_limits.insert(file, tenant.id.clone());
                    }
                }
            }
            for process in &tenant.processes {
                let Some(host_pid) = process.host_pid else {
                    continue;
                };
                // A process without known memory has registered, but holds no slot.
                let owner = if process.used_bytes.is_empty() {
                    Owner::Inside(tenant.id.clone())
                } else {
                    Owner::Attached(tenant.id.clone())
                };
                // A registration, which the kernel attests, takes precedence over a slot, which is only a claim.
                let is_better = |known: &(bool, Owner)| process.registered && !known.0;
                if self.by_pid.get(&host_pid).is_none_or(is_better) {
                    self.by_pid.insert(host_pid, (process.registered, owner));
                }
            }
        }
        self.deleted.refresh(files);
    }

    pub(crate) fn owner_of(&self, host_pid: u32, snapshot: &Snapshot) -> Owner {
        let known = self.by_pid.get(&host_pid).map(|(_, owner)| owner);
        if let Some(owner @ Owner::Attached(_)) = known {
            return owner.clone();
        }
        // A process that has registered in the new directory may still have mapped the old files.
        if let Some(tenant) = self.deleted.tenant_of(host_pid) {
            return Owner::Detached(tenant);
        }
        if let Some(owner) = known {
            return owner.clone();
        }
        let inside = self.by_root(host_pid).or_else(|| self.by_environment(host_pid, snapshot));
        inside.map_or(Owner::Unknown, Owner::Inside)
    }

    /// The tenant whose limits are at their usual path in the process's root. No link is followed, as a tenant could make
    /// one that leads to another tenant's limits.
    fn by_root(&self, host_pid: u32) -> Option<String> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root =
            open(process::folder_of(host_pid).join("root"), flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let limits = format!("{MANAGED}/limits");
        let found = fstat(openat2(&root, limits, flags, Mode::empty(), resolve).ok()?).ok()?;
        self.by_limits.get(&(found.st_dev, found.st_ino)).cloned()
    }

    /// Whether the process certainly belongs to this tenant by its root, and certainly has not loaded the tenant's limits:
    /// it has mapped no file with the inode of one of the tenant's. `false` if either cannot be seen.
    pub(super) fn is_unattached(&self, host_pid: u32, tenant: &str) -> bool {
        let directory = directory::locate(&self.root, tenant);
        let files = ["limits", "usage"].map(|name| lstat(directory.join(name)).map(|found| found.st_ino));
        let ([Ok(limits), Ok(usage)], Some(mapped)) = (files, deleted::mapped(host_pid)) else {
            return false;
        };
        let has_loaded = mapped.lines().any(|line| {
            let inode = line.split_ascii_whitespace().nth(4).and_then(|word| word.parse().ok());
            inode == Some(limits) || inode == Some(usage)
        });
        !mapped.is_empty() && !has_loaded && self.by_root(host_pid).as_deref() == Some(tenant)
    }

    /// The tenant whose directory `vcuda run` put into the process's environment. Not for lasting grants, as any process
    /// can set that variable.
    fn by_environment(&self, host_pid: u32, snapshot: &Snapshot) -> Option<String> {
        use std::os::unix::ffi::OsStrExt as _;
        let environment = process::environment_now(&process::folder_of(host_pid)).ok()?;
        let name = format!("{ENV_DIRECTORY}=");
        let value = environment.split(|byte| *byte == 0).find_map(|one| one.strip_prefix(name.as_bytes()))?;
        let directory = Path::new(std::ffi::OsStr::from_bytes(value));
        let id = directory.strip_prefix(self.root.join("containers")).ok()?.to_str()?;
        snapshot.find(id).filter(|tenant| tenant.is_transient).map(|tenant| tenant.id.clone())
    }
}
