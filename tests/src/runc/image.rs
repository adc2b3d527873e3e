//! Root file system of a container: its programs and users.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bind;
use crate::release_dir;

/// PAM configuration that lets root become any user.
const PERMITTED: &str = "auth required pam_permit.so\naccount required pam_permit.so\npassword required pam_permit.so\n\
                         session required pam_permit.so\n";
/// Account files with root and alice, and permission for root to become alice.
pub(super) const ACCOUNTS: [(&str, &str); 4] = [
    ("etc/passwd", "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"),
    ("etc/group", "root:x:0:\nalice:x:1000:\n"),
    ("etc/pam.d/su", PERMITTED),
    // PAM fails without this file.
    ("etc/pam.d/other", PERMITTED),
];

/// Source of a container's programs.
#[derive(Debug, Clone)]
pub enum Image {
    /// This machine's own userland.
    Host,
    /// Only musl's loader, with this program as `/app`.
    Musl(PathBuf),
}

impl Image {
    /// Puts the programs into a root file system, with a writable layer of `/usr` in `over`. Returns their mounts.
    pub(super) fn unpack(&self, root: &Path, over: &Path) -> Vec<Value> {
        match self {
            Image::Host => {
                link_userland(root);
                fs::create_dir(root.join("app")).unwrap();
                let data = |name: &str| over.join(name).display().to_string();
                let usr = json!({
                    "destination": "/usr", "type": "overlay", "source": "overlay", "options": [
                        "lowerdir=/usr", format!("upperdir={}", data("upper")), format!("workdir={}", data("work"))],
                });
                vec![usr, bind(&release_dir().join("test-apps"), "/app", "ro")]
            }
            Image::Musl(program) => {
                fs::create_dir(root.join("lib")).unwrap();
                let loader = format!("lib/ld-musl-{}.so.1", std::env::consts::ARCH);
                fs::copy(Path::new("/").join(&loader), root.join(&loader)).unwrap();
                fs::copy(program, root.join("app")).unwrap();
                Vec::new()
            }
        }
    }
}

/// Makes this machine's links into `/usr` in a root file system that mounts it.
///
/// # Panics
/// Panics if the disk is full.
pub fn link_userland(root: &Path) {
    for link in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
            symlink(target, root.join(link)).unwrap();
        }
    }
}
