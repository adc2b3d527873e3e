//! `vcuda attached`: is a program that starts here held to limits? Itself is the proof: what was loaded into it, the loader
//! would load into any other dynamic program of this container. In strict containers the runtime runs it before the
//! container's own program, which does not start unless this succeeds.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use vcuda_region::directory::MANAGED;

use crate::args::AttachedArgs;
use crate::doctor::container::{Places, limits, preload, usage};
use crate::doctor::{Finding, Health, probe};
use crate::failure::Failure;

/// One line on stdout if all is well; if not, one that names the broken link, on stderr and in the file that `args` name.
pub(crate) fn attached(args: &AttachedArgs) -> Result<(), Failure> {
    match broken(&Places::real(), probe::shim().as_deref()) {
        None => {
            writeln!(io::stdout(), "attached: limits at {MANAGED} hold here")?;
            Ok(())
        }
        Some(finding) => {
            let line = line(&finding);
            if let Some(report) = &args.report {
                // It may not be there: kubelet makes it, and a pod can say otherwise. The line on stderr is what counts.
                let _ = tell(report, &line);
            }
            Err(Failure::Failed(line))
        }
    }
}

/// The first link that is broken; `shim` is the library in this process.
fn broken(places: &Places, shim: Option<&str>) -> Option<Finding> {
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

/// Writes the line into a file that is there.
fn tell(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file: File = options.open(path)?;
    writeln!(file, "vcuda: {line}")
}
