//! Whether a tenant can be suspended now: the manager's conditions, one by one.

use vcuda_manager_api::v1::SuspendCheck;

use super::{Finding, Health};

/// The answer first, then its reasons. Of a tenant for which suspension was not asked when it was made, that alone.
pub(super) fn of_checks(checks: Vec<SuspendCheck>) -> Vec<Finding> {
    if let Some(check) = checks.iter().find(|check| !check.holds && check.name == "suspendable") {
        return vec![Finding::ok("suspendable", &*check.seen)];
    }
    let answer = match checks.iter().filter(|check| !check.holds).count() {
        0 => Finding::ok("suspension", "it can be suspended now"),
        number => Finding::broken(
            "suspension",
            "it cannot be suspended now",
            match number {
                1 => "one condition does not hold".to_owned(),
                many => format!("{many} conditions do not hold"),
            },
        ),
    };
    let of_check = |check: SuspendCheck| Finding {
        health: if check.holds { Health::Ok } else { Health::Broken },
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
        let fine = of_checks(vec![check("driver", None)]);
        assert_eq!(fine[0], Finding::ok("suspension", "it can be suspended now"));
        assert!(fine.iter().all(|one| one.health == Health::Ok && one.remedy.is_none()));
        let checks = vec![check("driver", Some("update")), check("MPS", None), check("processes", Some(""))];
        let refused = of_checks(checks);
        assert_eq!(refused[0].remedy.as_deref(), Some("2 conditions do not hold"));
        assert_eq!(refused[1].remedy.as_deref(), Some("update"));
        assert_eq!((refused[2].health, refused[3].health), (Health::Ok, Health::Broken));
        assert_eq!(refused[3].remedy, None);
    }

    #[test]
    fn nothing_is_wrong_where_suspension_was_not_asked_for() {
        let checks = vec![check("suspendable", Some("")), check("driver", Some("update"))];
        let health: Vec<Health> = of_checks(checks).iter().map(|one| one.health).collect();
        assert_eq!(health, [Health::Ok]);
    }
}
