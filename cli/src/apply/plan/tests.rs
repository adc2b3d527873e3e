//! Tests of the difference between a file and the node.

use vcuda_manager_api::v1::Amounts;

use super::*;

fn wanted(name: &str, memory_gib: u64, gpus: WantedGpus) -> Wanted {
    Wanted {
        line: 7,
        name: name.to_owned(),
        quota: Quota::fixed(Some(memory_gib << 30), 300),
        gpus,
        user: None,
        is_suspendable: false,
        memory_wait_ms: None,
    }
}

fn present(name: &str, memory_gib: u64, holder: Holder) -> Grant {
    Grant {
        id: format!("{name}-1"),
        key: name.to_owned(),
        amounts: Some(Amounts::from(&Quota::fixed(Some(memory_gib << 30), 300))),
        gpu_uuids: vec!["GPU-a".to_owned()],
        holder: Some(holder),
        created_unix_ms: 1,
        ..Grant::default()
    }
}

fn of_pod() -> Holder {
    Holder { namespace: "ml".to_owned(), pod: "train-0".to_owned(), ..Holder::default() }
}

const ANY: WantedGpus = WantedGpus::Number(None);

fn words(wanted: &[Wanted], present: &[Grant], prune: bool) -> Result<(Vec<String>, usize), String> {
    let plan = plan(Path::new("g.yaml"), wanted, present, prune).map_err(|failure| failure.to_string())?;
    Ok((plan.changes.iter().map(Change::words).collect(), plan.unchanged))
}

#[test]
fn what_frees_room_comes_first_and_what_is_not_in_the_file_stays() {
    let here = [
        present("grows", 1, Holder::default()),
        present("shrinks", 4, Holder::default()),
        present("same", 2, Holder::default()),
        present("other", 1, Holder::default()),
        present("pod", 1, of_pod()),
    ];
    let file = [
        wanted("new", 1, ANY),
        wanted("grows", 2, WantedGpus::Number(Some(1))),
        wanted("shrinks", 3, ANY),
        wanted("same", 2, WantedGpus::Named(vec!["GPU-a".to_owned()])),
    ];
    let rest = [
        "change shrinks-1: memory 4 GiB -> 3 GiB",
        "change grows-1: memory 1 GiB -> 2 GiB",
        "create new: 1 GiB, 30 % fixed on 1 GPU(s)",
    ];
    assert_eq!(words(&file, &here, false).unwrap(), (rest.map(str::to_owned).into(), 1));
    let (pruned, unchanged) = words(&file, &here, true).unwrap();
    assert_eq!((&pruned[1..], unchanged), (&rest.map(str::to_owned)[..], 1));
    assert_eq!(pruned[0], "release other-1: 1 GiB, 30 % fixed");
    // Rebuilt without its holder: it may be a pod's.
    let rebuilt = Grant { created_unix_ms: 0, ..present("rebuilt", 1, Holder::default()) };
    assert_eq!(words(&[], &[rebuilt], true).unwrap(), (Vec::new(), 0));
}

#[test]
fn a_pods_grant_and_other_gpus_are_refused() {
    let pod = words(&[wanted("pod", 1, ANY)], &[present("pod", 1, of_pod())], false).unwrap_err();
    assert!(pod.starts_with("g.yaml:7: name 'pod': a grant of Kubernetes (ml/train-0)"), "{pod}");
    for gpus in [WantedGpus::Number(Some(2)), WantedGpus::Named(vec!["GPU-b".to_owned()])] {
        let error = words(&[wanted("web", 1, gpus)], &[present("web", 1, Holder::default())], false);
        assert!(error.unwrap_err().contains("web-1 has GPU-a, the file says gpu"));
    }
}

#[test]
fn what_is_fixed_when_a_grant_is_made_is_refused_and_not_changed() {
    let here = |suspendable, memory_wait_ms| {
        [Grant { suspendable, memory_wait_ms, ..present("web", 1, Holder::default()) }]
    };
    let file =
        |is_suspendable, memory_wait_ms| [Wanted { is_suspendable, memory_wait_ms, ..wanted("web", 1, ANY) }];
    // 120 s is the usual wait: written or not, it is the same.
    for same in [
        (file(true, None), here(true, None)),
        (file(false, Some(120_000)), here(false, None)),
        (file(false, None), here(false, Some(120_000))),
    ] {
        assert_eq!(words(&same.0, &same.1, false).unwrap(), (Vec::new(), 1));
    }
    let refused = |file: &[Wanted], here: &[Grant]| words(file, here, false).unwrap_err();
    assert_eq!(
        refused(&file(true, None), &here(false, None)),
        "g.yaml:7: name 'web': web-1 is not suspendable, the file says it is; that cannot be changed later: release it first"
    );
    assert!(
        refused(&file(false, None), &here(true, None))
            .contains("web-1 is suspendable, the file says it is not;")
    );
    assert_eq!(
        refused(&file(false, Some(30_000)), &here(false, None)),
        "g.yaml:7: name 'web': web-1 waits 120s for memory, the file says wait-for-memory: 30s; that cannot be changed later: \
         release it first"
    );
}

#[test]
fn each_part_that_differs_is_shown() {
    let burst = Quota {
        cores_permille: 500,
        cores_max_permille: 800,
        policy: vcuda_quota::Policy::Burst,
        weight: Some(7),
        ..Quota::UNLIMITED
    };
    assert_eq!(
        differences(&Quota::fixed(Some(1 << 30), 300), &burst),
        [
            "memory 1 GiB -> whole GPU",
            "cores 30 % -> 50 %",
            "cores-max 30 % -> 80 %",
            "policy fixed -> burst",
            "weight 300 -> 7"
        ]
    );
}
