//! Files of tenants that were deleted or replaced while processes had them mapped. `/proc/<pid>/maps` still shows such a
//! file by device and inode, whatever its name and root.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, stat};
use vcuda_region::{directory, process};

/// Maximum part of a process's maps that is read (bytes).
const MAPS_BYTES: u64 = 8 << 20;
/// Maximum number of deleted files that are remembered.
const MOST_GONE: usize = 8192;
/// Suffix of the name of a mapped file that was deleted (proc_pid_maps(5)).
const DELETED: &str = " (deleted)";

type Inode = (u64, u64);

/// Files of tenants that have been deleted.
#[derive(Debug)]
pub(crate) struct DeletedFiles {
    root: PathBuf,
    present: BTreeSet<(Inode, String)>,
    gone: HashMap<Inode, String>,
    /// Deleted files, the oldest first.
    order: VecDeque<Inode>,
}

impl DeletedFiles {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), present: BTreeSet::new(), gone: HashMap::new(), order: VecDeque::new() }
    }

    /// Replaces the list of present files; files that are missing from it count as deleted.
    pub(super) fn refresh(&mut self, files: BTreeSet<(Inode, String)>) {
        for (inode, tenant) in self.present.difference(&files) {
            if self.gone.insert(*inode, tenant.clone()).is_none() {
                self.order.push_back(*inode);
            }
        }
        // A reused inode number belongs to the new file.
        for (inode, _) in &files {
            self.gone.remove(inode);
        }
        self.present = files;
        while self.order.len() > MOST_GONE {
            if let Some(oldest) = self.order.pop_front() {
                self.gone.remove(&oldest);
            }
        }
    }

    /// The tenant whose deleted files the process has mapped.
    pub(crate) fn tenant_of(&self, host_pid: u32) -> Option<String> {
        let text = mapped(host_pid)?;
        let device = stat(&self.root).ok()?.st_dev;
        text.lines().find_map(|line| self.tenant_of_line(line, device))
    }

    /// The tenant of a line `address permissions offset device inode path`.
    fn tenant_of_line(&self, line: &str, device: u64) -> Option<String> {
        let line = line.strip_suffix(DELETED)?;
        let mut words = line.split_ascii_whitespace().skip(3);
        let (high, low) = words.next()?.split_once(':')?;
        let hex = |text| u32::from_str_radix(text, 16).ok();
        if (hex(high)?, hex(low)?) != (major(device), minor(device)) {
            return None;
        }
        let inode = words.next()?.parse().ok()?;
        if let Some(tenant) = self.gone.get(&(device, inode)) {
            return Some(tenant.clone());
        }
        // The file was deleted before this manager's first look. Its name identifies the tenant: on this file system no
        // other process can make such a name.
        let path = Path::new(line.get(line.find('/')?..)?);
        let (directory, name) = (path.parent()?, path.file_name()?);
        if !directory::is_below(&self.root, directory) || (name != "limits" && name != "usage") {
            return None;
        }
        Some(directory::tenant_of_name(&directory.file_name()?.to_string_lossy()).to_owned())
    }
}

/// Mappings of the process, one per line (proc_pid_maps(5)).
pub(super) fn mapped(host_pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(process::folder_of(host_pid).join("maps")).ok()?;
    file.take(MAPS_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::{Child, Command};

    /// Starts a process that maps the file, in Python, as `tail` maps nothing.
    fn mapper(path: &Path) -> Child {
        let script = "import mmap,sys,time\nf=open(sys.argv[1],'rb')\nm=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\nprint('mapped',flush=True)\ntime.sleep(1000)";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
        child
    }

    #[test]
    fn a_deleted_file_is_known_by_its_inode_and_by_its_name() {
        let root = tempfile::tempdir().unwrap();
        let tenants = root.path().join("containers");
        let directory = tenants.join("web-1");
        fs::create_dir_all(&directory).unwrap();
        let (limits, elsewhere) = (directory.join("limits"), root.path().join("other"));
        for path in [&limits, &elsewhere] {
            fs::write(path, b"something").unwrap();
        }
        let file = File::open(&limits).unwrap();
        assert!(file.as_raw_fd() > 0);
        let found = file.metadata().unwrap();
        let files = BTreeSet::from([((found.dev(), found.ino()), "web-1".to_owned())]);
        let mut deleted = DeletedFiles::new(root.path());
        deleted.refresh(files.clone());
        let (mut own, mut other) = (mapper(&limits), mapper(&elsewhere));
        assert_eq!(deleted.tenant_of(own.id()), None, "it is there");
        for path in [&limits, &elsewhere] {
            fs::remove_file(path).unwrap();
        }
        assert_eq!(
            DeletedFiles::new(root.path()).tenant_of(own.id()),
            Some("web-1".to_owned()),
            "by its name"
        );
        let removed = tenants.join(".dead-web-1-77");
        fs::rename(&directory, &removed).unwrap();
        assert_eq!(
            DeletedFiles::new(root.path()).tenant_of(own.id()),
            Some("web-1".to_owned()),
            "by the name under which it is removed"
        );
        // Known only by its inode, as the name identifies no tenant.
        let nothing = root.path().join("nothing");
        fs::create_dir(&nothing).unwrap();
        let mut moved = DeletedFiles::new(&nothing);
        moved.refresh(files.clone());
        moved.refresh(BTreeSet::new());
        assert_eq!(moved.tenant_of(own.id()), Some("web-1".to_owned()));
        assert_eq!(moved.tenant_of(other.id()), None);
        // The inode number now belongs to another file.
        moved.refresh(files);
        assert_eq!(moved.tenant_of(own.id()), None);
        for child in [&mut own, &mut other] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
