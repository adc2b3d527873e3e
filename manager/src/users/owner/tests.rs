//! Tests of users' limits.

use vcuda_quota::Policy;
use vcuda_region::GpuUuid;

use super::*;
use crate::grant::Lasting;
use crate::users::UserLimits;

const GIB: u64 = 1 << 30;

fn grant(number: u64, owner: u32, memory_gib: Option<u64>, cores_permille: u32, gpus: u8) -> Grant {
    Grant {
        owner: Some(owner),
        amounts: Quota::fixed(memory_gib.map(|gib| gib * GIB), cores_permille),
        ..Grant::example("g", number, (0..gpus).map(|byte| GpuUuid::from_bytes([byte; 16])).collect())
    }
}

fn alice() -> Owner {
    Owner {
        uid: 1000,
        name: "alice (1000)".to_owned(),
        limit: Some(UserLimit {
            memory_bytes: Some(8 * GIB),
            cores_permille: Some(500),
            grants: Some(2),
            place: "*".to_owned(),
        }),
    }
}

fn check_new(owner: &Owner, here: &GrantTable, new: &Grant) -> Result<(), String> {
    owner.check_new(here, &new.amounts, new.gpus.len())
}

fn table(grants: &[Grant]) -> GrantTable {
    let mut table = GrantTable::default();
    for grant in grants {
        table.put(Arc::new(grant.clone()));
    }
    table
}

#[test]
fn the_sum_counts_each_gpu_and_the_users_grants_only() {
    let here = table(&[grant(1, 1000, Some(2), 100, 2), grant(2, 1001, Some(9), 900, 1)]);
    let check = |grant: &Grant| check_new(&alice(), &here, grant);
    check(&grant(3, 1000, Some(4), 300, 1)).unwrap();
    let memory = check(&grant(3, 1000, Some(5), 300, 1)).unwrap_err();
    for words in ["alice (1000)", "8 GiB of GPU memory", "has 4 GiB", "asked for 5 GiB", "users.\"*\""] {
        assert!(memory.contains(words), "{words}: {memory}");
    }
    let time = check(&grant(3, 1000, Some(1), 301, 1)).unwrap_err();
    assert!(
        time.contains("50 % of GPU time") && time.contains("has 20 %") && time.contains("asked for 30.1 %"),
        "{time}"
    );
    let whole = check(&grant(3, 1000, None, 10, 1)).unwrap_err();
    assert!(whole.contains("a whole GPU"), "{whole}");
    // Without a share a fixed grant may take all; best-effort takes what others leave.
    check(&grant(3, 1000, Some(1), 1000, 1)).unwrap_err();
    let mut rest = grant(3, 1000, Some(1), 1000, 1);
    rest.amounts.policy = Policy::BestEffort;
    check(&rest).unwrap();
}

#[test]
fn what_does_not_grow_is_not_refused_and_what_comes_back_counts() {
    let had = grant(1, 1000, Some(20), 900, 1);
    let here = table(std::slice::from_ref(&had));
    let check = |after: &Grant| alice().check_change(&here, &had, after);
    check(&grant(1, 1000, Some(19), 900, 1)).unwrap();
    check(&grant(1, 1000, Some(21), 100, 1)).unwrap_err();
    // For a time smaller: the lasting amounts still count.
    let mut small = grant(1, 1000, Some(1), 100, 1);
    small.lasting = Some(Lasting { amounts: Quota::fixed(Some(6 * GIB), 100), until_unix_ms: 9 });
    let here = table(std::slice::from_ref(&small));
    check_new(&alice(), &here, &grant(2, 1000, Some(2), 100, 1)).unwrap();
    check_new(&alice(), &here, &grant(2, 1000, Some(3), 100, 1)).unwrap_err();
    // A third grant is one too many, a change of one is not.
    let two = table(&[small, grant(2, 1000, Some(1), 10, 1)]);
    let third = check_new(&alice(), &two, &grant(3, 1000, Some(1), 10, 1)).unwrap_err();
    assert!(third.contains("may have 2 grants") && third.contains("has 2 in"), "{third}");
    let (before, after) = (grant(2, 1000, Some(1), 10, 1), grant(2, 1000, Some(2), 10, 1));
    alice().check_change(&two, &before, &after).unwrap();
}

#[test]
fn a_user_cannot_outrank_others() {
    let mut high = grant(1, 1000, Some(1), 100, 1);
    high.amounts.priority = Priority::High;
    assert!(check_new(&alice(), &table(&[]), &high).unwrap_err().contains("at most normal"));
    // What an operator gave stays while another amount changes.
    let smaller = Grant { amounts: Quota { memory_bytes: Some(GIB / 2), ..high.amounts }, ..high.clone() };
    let here = table(std::slice::from_ref(&high));
    alice().check_change(&here, &high, &smaller).unwrap();
    let mut heavy = grant(1, 1000, Some(1), 100, 1);
    heavy.amounts.weight = Some(1001);
    assert!(check_new(&alice(), &table(&[]), &heavy).unwrap_err().contains("at most 1000"));
}

/// The user repeats what the operator gave for a time, for good or for a time of its own.
#[test]
fn what_was_given_for_a_time_does_not_stay_by_a_users_change() {
    let lasting = grant(1, 1000, Some(6), 300, 1);
    let given = |priority, weight| Grant {
        amounts: Quota { priority, weight, ..Quota::fixed(Some(20 * GIB), 900) },
        lasting: Some(Lasting { amounts: lasting.amounts, until_unix_ms: 9 }),
        ..lasting.clone()
    };
    let loan = given(Priority::High, Some(5000));
    let here = table(std::slice::from_ref(&loan));
    let check = |after: &Grant| alice().check_change(&here, &loan, after);
    for amounts in [
        loan.amounts,
        Quota::fixed(Some(20 * GIB), 300),
        Quota::fixed(Some(6 * GIB), 900),
        given(Priority::High, None).amounts,
        Quota {
            memory_bytes: lasting.amounts.memory_bytes,
            cores_permille: 300,
            ..given(Priority::Normal, Some(5000)).amounts
        },
    ] {
        let for_good = Grant { amounts, ..lasting.clone() };
        check(&for_good).unwrap_err();
        let for_a_time = Grant { lasting: loan.lasting, ..for_good };
        check(&for_a_time).unwrap_err();
    }
    check(&lasting).unwrap();
    check(&grant(1, 1000, Some(8), 500, 1)).unwrap();
    // Without a limit in numbers, the rank is bounded all the same.
    let unlimited = Owner { limit: None, ..alice() };
    let high = Grant { amounts: Quota { priority: Priority::High, ..lasting.amounts }, ..lasting.clone() };
    unlimited.check_change(&here, &loan, &high).unwrap_err();
}

#[test]
fn a_users_own_limit_comes_first_then_the_least_of_its_groups() {
    let limit = |gib: u64, cores: Option<u32>, place: &str| UserLimit {
        memory_bytes: Some(gib * GIB),
        cores_permille: cores,
        grants: None,
        place: place.to_owned(),
    };
    let limits = UserLimits {
        own: [(1000, limit(1, None, "alice"))].into(),
        members: [(50, limit(8, Some(500), "@a")), (51, limit(9, Some(300), "@b"))].into(),
        others: Some(limit(2, None, "*")),
    };
    let memory = |uid, groups: &[u32]| limits.of(uid, groups).unwrap();
    assert_eq!(memory(1000, &[50]).place, "alice");
    let least = memory(1001, &[7, 50, 51]);
    assert_eq!((least.memory_bytes, least.cores_permille), (Some(8 * GIB), Some(300)));
    assert_eq!(least.place, "@a and @b");
    assert_eq!(memory(1001, &[]).place, "*");
    assert_eq!(UserLimits::default().of(1001, &[50]), None);
}
