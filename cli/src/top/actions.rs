//! What `vcuda top` changes: a tenant's quota, and a process, which it ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vcuda_region::process::Identity;

use crate::args::QuotaArgs;
use crate::config::Environment;
use crate::failure::{Failure, failed};
use crate::grant;

/// Changes a tenant's quota by options such as `--memory 6GiB --cores 50`. Returns what to tell the user.
pub(super) fn change_quota(name: &str, typed: &str, environment: &Environment) -> Result<String, Failure> {
    let typed = QuotaArgs::of_words(typed.split_whitespace())?;
    if typed.is_empty() {
        return Ok(format!("{name} is as it was"));
    }
    let resized = grant::change(&[name.to_owned()], (&typed, None), environment)?;
    let words = resized.iter().flat_map(|one| [Some(one.words()), one.warning()]);
    Ok(words.flatten().collect::<Vec<_>>().join("; "))
}

/// A process that is to be ended once the user agrees.
#[derive(Clone, Debug)]
pub(super) struct Doomed {
    identity: Identity,
    pid: u32,
}

impl Doomed {
    /// The process with this PID here. `None` if it has ended, or has another name than the one shown.
    pub(super) fn find(pid: u32, name: &str) -> Option<Doomed> {
        let identity = Identity::of(pid).ok()?;
        (identity.command() == name).then_some(Doomed { identity, pid })
    }

    /// Sends it SIGTERM, unless the PID belongs to another process by now.
    pub(super) fn end(&self) -> Result<String, Failure> {
        let is_same = Identity::of(self.pid).is_ok_and(|now| now.is_same(&self.identity));
        if !is_same {
            return Ok(format!("process {} has ended already", self.pid));
        }
        let pid = i32::try_from(self.pid).map_err(failed)?;
        kill(Pid::from_raw(pid), Signal::SIGTERM)
            .map_err(|error| Failure::Failed(format!("process {pid} cannot be ended: {}", error.desc())))?;
        Ok(format!("process {pid} was told to end (SIGTERM)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_and_no_other() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(Doomed::find(pid, "another-name").is_none());
        // The child has its own name once it runs its program.
        let doomed = loop {
            if let Some(doomed) = Doomed::find(pid, "sleep") {
                break doomed;
            }
        };
        assert!(doomed.end().unwrap().contains("SIGTERM"));
        assert!(!child.wait().unwrap().success());
        assert!(doomed.end().unwrap().contains("has ended already"));
    }
}
