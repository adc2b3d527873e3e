//! Resolution of symbolic links within a directory that is another system's root.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Most links of a path, as in the kernel (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// Resolves `path` in the root at `view`. Returns the path below the root, without links; `None` if it is no regular file.
/// Absolute links begin at that root, and `..` does not leave it.
pub(super) fn resolve(view: &Path, path: &Path) -> Option<PathBuf> {
    let mut ahead: VecDeque<OsString> = names(path);
    let mut reached = PathBuf::new();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            reached.pop();
            continue;
        }
        let next = reached.join(&name);
        let kind = fs::symlink_metadata(view.join(&next)).ok()?;
        if !kind.is_symlink() {
            reached = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return None;
        }
        let target = fs::read_link(view.join(&next)).ok()?;
        if target.is_absolute() {
            reached = PathBuf::new();
        }
        for name in names(&target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    fs::symlink_metadata(view.join(&reached)).is_ok_and(|kind| kind.is_file()).then_some(reached)
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
        })
        .collect()
}
