//! Checks of the node's manager: whether it answers, its problems, and the findings of its audit.

use vcuda_manager_api::v1::{Container, NodeStatus};

use super::Finding;
use crate::config::Environment;
use crate::manager_client::{Absence, ManagerClient};

pub(super) fn findings(environment: &Environment) -> Vec<Finding> {
    let node = match ManagerClient::presence(environment) {
        Ok(node) => node,
        Err(absence) => return vec![absent(absence)],
    };
    let (status, containers) = match (node.status(), node.containers()) {
        (Ok(status), Ok(containers)) => (status, containers.containers),
        (Err(failure), _) | (_, Err(failure)) => {
            return vec![Finding::broken(
                "manager",
                format!("{}: {failure}", node.socket().display()),
                "look into its log (journalctl -u vcuda-manager), and restart it: no container notices",
            )];
        }
    };
    let mut findings = vec![version(&node, &status)];
    findings.extend(status.problems.iter().map(|problem| {
        Finding::note(
            "manager",
            problem.clone(),
            "docs/operations.md has what to do about each",
        )
    }));
    findings.extend(containers.iter().flat_map(of_container));
    findings
}

/// Finding if no manager can be used; only grants need one.
fn absent(absence: Absence) -> Finding {
    match absence {
        Absence::NoManager => Finding::ok("manager", "none runs here; only grants need one"),
        Absence::Down(why) => Finding::note(
            "manager",
            why,
            "start it again (systemctl start vcuda-manager; in Kubernetes its pod is restarted): containers go on meanwhile",
        ),
        Absence::Denied(why) => Finding::note(
            "manager",
            why,
            "join the group of its socket, or ask its operator to admit you",
        ),
        Absence::Silent(why) => Finding::note(
            "manager",
            why,
            "look into its log (journalctl -u vcuda-manager), and restart it: no container notices",
        ),
    }
}

fn version(node: &ManagerClient, status: &NodeStatus) -> Finding {
    let seen = format!(
        "version {} at {}, tenants in {}",
        status.version,
        node.socket().display(),
        status.root
    );
    if status.version == env!("CARGO_PKG_VERSION") {
        Finding::ok("manager", seen)
    } else {
        Finding::note(
            "manager",
            format!("{seen}; this vcuda is {}", env!("CARGO_PKG_VERSION")),
            "they work together; update the older one when it suits",
        )
    }
}

fn of_container(container: &Container) -> Vec<Finding> {
    let link = format!("container {}", container.id);
    let found = container.findings.iter().map(|finding| {
        Finding::broken(
            &link,
            finding.clone(),
            "vcuda events --container tells when; docs/operations.md has what to do",
        )
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn what_the_audit_found_is_broken() {
        let container = Container {
            id: "web-7".to_owned(),
            findings: vec!["5 GiB in use, 4 GiB granted".to_owned()],
            ..Container::default()
        };
        let findings = of_container(&container);
        assert_eq!((findings.len(), findings[0].health), (1, Health::Broken));
        assert_eq!(findings[0].link, "container web-7");
    }

    #[test]
    fn each_absence_of_the_manager_has_its_remedy() {
        assert_eq!(absent(Absence::NoManager).health, Health::Ok);
        let remedy = |absence: Absence| absent(absence).remedy.unwrap();
        assert!(remedy(Absence::Down("x".to_owned())).starts_with("start it again"));
        assert!(remedy(Absence::Denied("x".to_owned())).contains("group"));
        assert!(remedy(Absence::Silent("x".to_owned())).contains("log"));
    }
}
