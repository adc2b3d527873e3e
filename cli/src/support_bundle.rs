//! `vcuda support-bundle`: one archive with what a maintainer needs, without secrets.

mod collect;
mod files;
mod redact;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::args::SupportBundleArgs;
use crate::config::Environment;
use crate::failure::Failure;

/// Folder of the files in the archive.
const FOLDER: &str = "support";
/// File that lists the others.
const MANIFEST: &str = "MANIFEST";

#[derive(Debug)]
struct Part {
    name: String,
    /// The bytes, or the reason why there are none.
    content: Result<Vec<u8>, String>,
}

/// Collects everything, writes the archive and names it.
pub(crate) fn support_bundle(args: &SupportBundleArgs, environment: &Environment) -> Result<(), Failure> {
    let path = args.file.clone().unwrap_or_else(default_path);
    let file = create(&path)?;
    let parts = collect::parts(args, environment);
    write(file, &parts).map_err(|error| {
        // A part of an archive is of no use, and keeps the next try from the name.
        let _ = fs::remove_file(&path);
        Failure::output("write", &path, &error)
    })?;
    let missing = parts.iter().filter(|part| part.content.is_err()).count();
    Ok(writeln!(
        io::stdout(),
        "{}: {} files, {missing} not there ({FOLDER}/{MANIFEST} says why); look at it before you send it",
        path.display(),
        parts.len() - missing,
    )?)
}

fn default_path() -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    PathBuf::from(format!("vcuda-support-{now}.tar.gz"))
}

/// Creates the archive for its owner alone. An existing file is not replaced.
fn create(path: &Path) -> Result<File, Failure> {
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Usage(format!(
            "support-bundle {}: it exists; name another file, or remove it",
            path.display()
        )),
        _ => Failure::output("create", path, &error),
    })
}

fn write(file: File, parts: &[Part]) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    append(&mut archive, MANIFEST, manifest(parts).as_bytes())?;
    for part in parts {
        if let Ok(content) = &part.content {
            append(&mut archive, &part.name, content)?;
        }
    }
    archive.into_inner()?.finish()?.sync_all()
}

fn append(archive: &mut tar::Builder<impl io::Write>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    header.set_mtime(now.as_secs());
    archive.append_data(&mut header, format!("{FOLDER}/{name}"), content)
}

/// A line for each part: its size, or the reason why it is missing.
fn manifest(parts: &[Part]) -> String {
    let line = |part: &Part| match &part.content {
        Ok(content) => format!("{:<28}  {} bytes\n", part.name, content.len()),
        Err(why) => format!("{:<28}  not there: {why}\n", part.name),
    };
    parts.iter().map(line).collect()
}
