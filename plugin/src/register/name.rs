//! Name of a socket in the directory that kubelet watches.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// End of the name.
const END: &str = "-reg.sock";

/// A name such as `vcuda.io-gpu-reg.sock`. If kubelet could not connect to a path, it tries the same path again only after a pause, also
/// if there is a new socket meanwhile. The pause grows to two minutes (pkg/util/goroutinemap/exponentialbackoff). Kubelet finds such
/// dead sockets at its start after a loss of power, or after the plugin was killed. So a socket that kubelet does not query is replaced
/// by one with a number, such as `vcuda.io-gpu-1796000000-reg.sock`.
#[derive(Debug)]
pub(crate) struct WatchedName {
    directory: PathBuf,
    stem: String,
    /// Number in the name; `None` for the plain one.
    number: Option<u64>,
}

impl WatchedName {
    /// The name that an earlier process had, which kubelet may know as the resource's: two names of one resource at the same time
    /// would be registered and removed in any order.
    pub(crate) fn find(directory: PathBuf, stem: String) -> Self {
        let mut name = Self { directory, stem, number: None };
        name.number = name.present().into_iter().max().flatten();
        name
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.path_of(self.number)
    }

    fn path_of(&self, number: Option<u64>) -> PathBuf {
        let number = number.map_or_else(String::new, |number| format!("-{number}"));
        self.directory.join(format!("{}{number}{END}", self.stem))
    }

    /// Takes a name that was not used before: its number is the time (s).
    pub(crate) fn renew(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.number = Some(self.number.map_or(now, |number| now.max(number + 1)));
    }

    /// Removes the sockets with another name, which an earlier process left.
    pub(crate) fn remove_others(&self) {
        for number in self.present().into_iter().filter(|number| *number != self.number) {
            // If it fails, kubelet goes on dialling a dead socket.
            let _ = fs::remove_file(self.path_of(number));
        }
    }

    /// Numbers in the names of the sockets that are there.
    fn present(&self) -> Vec<Option<u64>> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        let number = |entry: fs::DirEntry| {
            let name = entry.file_name();
            match name.to_str()?.strip_prefix(&self.stem)?.strip_suffix(END)? {
                "" => Some(None),
                numbered => Some(Some(numbered.strip_prefix('-')?.parse().ok()?)),
            }
        };
        sockets.filter_map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_name_is_new_after_each_renewal_and_found_by_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let find = || WatchedName::find(directory.path().to_owned(), "vcuda.io".to_owned());
        let mut name = find();
        assert_eq!(name.path(), directory.path().join("vcuda.io-reg.sock"));
        let mut paths = vec![name.path()];
        for _ in 0..3 {
            name.renew();
            paths.push(name.path());
        }
        let other = directory.path().join("vcuda.io-gpu-reg.sock");
        for path in paths.iter().chain([&other]) {
            drop(UnixListener::bind(path).unwrap());
        }
        let next = find();
        assert_eq!(Some(&next.path()), paths.last());
        next.remove_others();
        let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [false, false, false, true]);
        assert!(other.exists());
    }
}
