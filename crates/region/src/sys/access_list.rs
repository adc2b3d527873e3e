//! Access lists of directories (acl(5)).

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lets `user` go through the directory, besides its owner, by an access list (acl(5)). The user can neither list nor change it.
///
/// # Errors
/// `EOPNOTSUPP`: the file system keeps none.
pub(crate) fn let_through(directory: &Path, user: u32) -> io::Result<()> {
    // Version 2; then tag, permissions and id of the owner, the user, the group, the mask and all others
    // (linux/posix_acl_xattr.h; the kernel wants this order).
    const VERSION: u32 = 2;
    const NO_ID: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 7, NO_ID), (0x02, 1, user), (0x04, 0, NO_ID), (0x10, 1, NO_ID), (0x20, 0, NO_ID)];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let path = CString::new(directory.as_os_str().as_bytes())?;
    // SAFETY: two terminated strings, and `list` with its length.
    let answer = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"system.posix_acl_access".as_ptr(),
            list.as_ptr().cast(),
            list.len(),
            0,
        )
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
