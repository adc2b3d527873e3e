//! `vcuda attached`: tests whether a program that starts here is limited, by its own case. The loader loads the same
//! libraries into any other dynamic program of this container. In strict containers the runtime runs it first, and starts
//! the container's own program only if it succeeds.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use vcuda_region::directory::MANAGED;

use crate::args::AttachedArgs;
use crate::doctor::container::{Places, limits, preload, usage};
use crate::doctor::{Finding, Health, probe};
use crate::failure::Failure;

/// Prints one line if all is well. Otherwise a line that names the broken link goes to stderr and to the file in `args`.
pub(crate) fn attached(args: &AttachedArgs) -> Result<(), Failure> {
    match first_broken(&Places::real(), probe::shim().as_deref()) {
        None => {
            writeln!(io::stdout(), "attached: limits at {MANAGED} hold here")?;
            Ok(())
        }
        Some(finding) => {
            let line = line(&finding);
            if let Some(report) = &args.report {
                // The file is made by kubelet, unless the pod has another. A failure is ignored, as stderr has the line.
                let _ = append_line(report, &line);
            }
            Err(Failure::Failed(line))
        }
    }
}

/// The first broken link; `shim` is the shim's path in this process.
fn first_broken(places: &Places, shim: Option<&str>) -> Option<Finding> {
    let loaded = match (shim, preload(places)) {
        (_, finding) if finding.health == Health::Broken => finding,
        (Some(shim), _) => Finding::ok("shim in the process", shim),
        (None, _) => Finding::broken(
            "shim in the process",
            "the loader of this image has not loaded it",
            "is it glibc's (2.17 or later), and of this processor? LD_DEBUG=libs shows more",
        ),
    };
    let links = [loaded, limits(places), usage(places)];
    links.into_iter().find(|finding| finding.health == Health::Broken)
}

fn line(finding: &Finding) -> String {
    let remedy = finding.remedy.as_deref().unwrap_or_default();
    format!("not attached: {}: {}; {remedy}", finding.link, finding.seen)
}

/// Writes the line into an existing file, following no link.
fn append_line(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file: File = options.open(path)?;
    writeln!(file, "vcuda: {line}")
}
