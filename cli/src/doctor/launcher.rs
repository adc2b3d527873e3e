//! Check of commands that start the program somewhere else, or without the environment that leads to the shim. A program that the
//! check does not know by its name is not told.

use std::ffi::OsString;
use std::path::Path;

use super::Finding;

/// What these commands start, and what to do instead.
const LAUNCHERS: [(&[&str], &str, &str); 4] = [
    (
        &["docker", "podman", "nerdctl", "apptainer", "singularity", "enroot"],
        "starts the program in a container, without this quota",
        "give the container a grant (docs/tutorial-node.md), or run vcuda in it",
    ),
    (
        &["sudo", "su", "doas", "pkexec"],
        "removes LD_PRELOAD from the program's environment",
        "run vcuda by it: sudo vcuda run ... -- CMD",
    ),
    (
        &["ssh", "srun", "sbatch", "kubectl", "mosh"],
        "may start the program on another machine, where this quota is not known",
        "run vcuda there: srun vcuda run ... -- CMD",
    ),
    (
        &["systemd-run", "flatpak", "snap"],
        "has another process start the program, without this environment (systemd-run --scope keeps it)",
        "let that start vcuda: systemd-run vcuda run ... -- CMD",
    ),
];

/// A note if the command does not pass the quota on to what it starts.
pub(super) fn finding(command: &[OsString]) -> Option<Finding> {
    let name = Path::new(command.first()?).file_name()?.to_str()?;
    if name == "env" {
        return clears_environment(command).then(|| {
            Finding::note(
                "program",
                "env removes LD_PRELOAD from the program's environment",
                "write env before vcuda: env -i PATH=... vcuda run ... -- CMD",
            )
        });
    }
    let launcher = LAUNCHERS.iter().find(|(names, ..)| names.contains(&name));
    launcher.map(|(_, what, remedy)| Finding::note("program", format!("{name} {what}"), *remedy))
}

/// Whether `env` is told to start from an empty environment, or without `LD_PRELOAD`.
fn clears_environment(command: &[OsString]) -> bool {
    let words: Vec<&str> = command.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let mut options = words.iter().take_while(|word| word.starts_with('-') || word.contains('='));
    let is_empty = options
        .any(|word| ["-", "-i", "--ignore-environment", "-uLD_PRELOAD", "--unset=LD_PRELOAD"].contains(word));
    is_empty || words.windows(2).any(|pair| pair == ["-u", "LD_PRELOAD"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(line: &str) -> Option<String> {
        let command: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        finding(&command).map(|finding| finding.seen)
    }

    #[test]
    fn what_starts_a_program_without_the_quota_is_told() {
        for (line, part) in [
            ("docker run --gpus all image", "in a container"),
            ("/usr/bin/podman run image", "in a container"),
            ("srun python train.py", "on another machine"),
            ("sudo -E python train.py", "removes LD_PRELOAD"),
            ("env -i python train.py", "removes LD_PRELOAD"),
            ("env A=1 -u LD_PRELOAD python", "removes LD_PRELOAD"),
            ("systemd-run --user python", "another process"),
        ] {
            assert!(seen(line).is_some_and(|seen| seen.contains(part)), "{line}");
        }
        for line in ["python train.py", "env A=1 python -i", "env python -u LD", "nice podman-like"] {
            assert_eq!(seen(line), None, "{line}");
        }
    }
}
