//! Whether a tenant can be suspended now: the manager's conditions, one by one.

use vcuda_manager_api::v1::SuspendCheck;

use super::{Finding, Health};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::suspend;

/// A finding for each condition of the suspension of the tenant `name`.
///
/// # Errors
/// There is no such tenant, or no manager answers.
pub(super) fn findings(name: &str, environment: &Environment) -> Result<Vec<Finding>, Failure> {
    let node = ManagerClient::required(environment)?;
    let mut findings = Vec::new();
    for id in suspend::ids(&node, &[name.to_owned()])? {
        findings.extend(of_checks(&id, node.check_suspend(&id)?));
    }
    Ok(findings)
}

/// The answer first, then its reasons.
fn of_checks(id: &str, checks: Vec<SuspendCheck>) -> Vec<Finding> {
    // Nothing is broken if suspension was not asked for when the tenant was made.
    let is_asked_for = checks.iter().all(|check| check.holds || check.name != "suspendable");
    let against = match is_asked_for {
        true => Health::Broken,
        false => Health::Note,
    };
    let answer = Finding::ok(&format!("tenant {id}"), "it can be suspended now");
    let answer = match checks.iter().filter(|check| !check.holds).count() {
        0 => answer,
        number => Finding {
            health: against,
            seen: "it cannot be suspended now".to_owned(),
            remedy: Some(match number {
                1 => "one condition does not hold".to_owned(),
                many => format!("{many} conditions do not hold"),
            }),
            ..answer
        },
    };
    let of_check = |check: SuspendCheck| Finding {
        health: if check.holds { Health::Ok } else { against },
        link: check.name,
        seen: check.seen,
        remedy: Some(check.remedy).filter(|remedy| !check.holds && !remedy.is_empty()),
    };
    std::iter::once(answer).chain(checks.into_iter().map(of_check)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, remedy: Option<&str>) -> SuspendCheck {
        SuspendCheck {
            name: name.to_owned(),
            holds: remedy.is_none(),
            seen: "seen".to_owned(),
            remedy: remedy.unwrap_or_default().to_owned(),
        }
    }

    #[test]
    fn the_answer_comes_first_and_each_reason_has_its_remedy() {
        let fine = of_checks("a-1", vec![check("driver", None)]);
        assert_eq!(fine[0], Finding::ok("tenant a-1", "it can be suspended now"));
        assert!(fine.iter().all(|one| one.health == Health::Ok && one.remedy.is_none()));
        let checks = vec![check("driver", Some("update")), check("MPS", None), check("processes", Some(""))];
        let refused = of_checks("a-1", checks);
        assert_eq!(refused[0].remedy.as_deref(), Some("2 conditions do not hold"));
        assert_eq!(refused[1].remedy.as_deref(), Some("update"));
        assert_eq!((refused[2].health, refused[3].health), (Health::Ok, Health::Broken));
        assert_eq!(refused[3].remedy, None);
    }

    #[test]
    fn nothing_is_broken_where_suspension_was_not_asked_for() {
        let checks = vec![check("suspendable", Some("")), check("driver", Some("update"))];
        let health: Vec<Health> = of_checks("a-1", checks).iter().map(|one| one.health).collect();
        assert_eq!(health, [Health::Note; 3]);
    }
}
