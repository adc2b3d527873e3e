//! `vcuda docker-args`: arguments with which a container engine without CDI starts a container in a grant.

use std::io::Write as _;

use vcuda_manager_api::v1::ContainerEdits;

use crate::config::Environment;
use crate::failure::Failure;
use crate::grant::unknown;
use crate::manager_client::ManagerClient;

pub(crate) fn docker_args(name: &str, environment: &Environment) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    let grant = node.grant(name)?.ok_or_else(|| unknown(&node, name))?;
    let arguments = arguments(&node.container_edits(&grant.id)?)?;
    Ok(writeln!(std::io::stdout(), "{}", arguments.join(" "))?)
}

/// The arguments, which a shell splits at their spaces.
fn arguments(edits: &ContainerEdits) -> Result<Vec<String>, Failure> {
    let mut arguments = Vec::new();
    for variable in &edits.env {
        arguments.extend(["-e".to_owned(), safe(variable)?.to_owned()]);
    }
    for node in &edits.device_nodes {
        let pair = format!("{}:{}", path(&node.host)?, path(&node.container)?);
        arguments.extend(["--device".to_owned(), pair]);
    }
    for mount in &edits.mounts {
        let access = if mount.writable { "rw" } else { "ro" };
        let mount = format!("{}:{}:{access}", path(&mount.host)?, path(&mount.container)?);
        arguments.extend(["-v".to_owned(), mount]);
    }
    Ok(arguments)
}

/// A path, unless it has a colon, which ends it in an argument.
fn path(text: &str) -> Result<&str, Failure> {
    match text.contains(':') {
        true => Err(unsafe_text(text)),
        false => safe(text),
    }
}

/// A text, unless a shell would change it.
fn safe(text: &str) -> Result<&str, Failure> {
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@=,:".contains(letter);
    match text.chars().all(is_safe) {
        true => Ok(text),
        false => Err(unsafe_text(text)),
    }
}

fn unsafe_text(text: &str) -> Failure {
    Failure::Failed(format!(
        "{text:?}: cannot be a word of a command line; use the grant's CDI device, or a path without such letters"
    ))
}

#[cfg(test)]
mod tests {
    use vcuda_manager_api::v1::container_edits::{Mount, Node};

    use super::*;

    fn edits(host: &str) -> ContainerEdits {
        ContainerEdits {
            env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
            device_nodes: vec![Node {
                host: "/dev/nvidia3".to_owned(),
                container: "/dev/nvidia3".to_owned(),
            }],
            mounts: [("limits", false), ("usage", true)]
                .map(|(file, writable)| Mount {
                    host: format!("{host}/{file}"),
                    container: format!("/etc/vcuda/{file}"),
                    writable,
                })
                .to_vec(),
        }
    }

    #[test]
    fn each_edit_is_an_argument() {
        assert_eq!(
            arguments(&edits("/run/vcuda/containers/web-1")).unwrap().join(" "),
            "-e NVIDIA_VISIBLE_DEVICES=void --device /dev/nvidia3:/dev/nvidia3 \
             -v /run/vcuda/containers/web-1/limits:/etc/vcuda/limits:ro \
             -v /run/vcuda/containers/web-1/usage:/etc/vcuda/usage:rw"
        );
    }

    #[test]
    fn a_path_that_a_shell_or_the_engine_would_split_is_refused() {
        for host in ["/my dir", "/a:b", "/*", "/$HOME"] {
            let said = arguments(&edits(host)).unwrap_err().to_string();
            assert!(said.contains(host), "{said}");
        }
    }
}
