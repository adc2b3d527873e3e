//! Limits of users: each may have so much in sum over its grants, whoever makes them and whatever happens to the manager.

use std::fs;
use std::process::Output;

use serde_json::Value;
use vcuda_tests::{OtherUsers, is_other_users, succeeded, text};

const ALICE: &str = "61003";
const BOB: &str = "61004";
const STUDENTS: &str = "61010";
const LIMITS: &str =
    "[users.\"61003\"]\nmemory = \"8GiB\"\ncores = \"50\"\n[users.\"@61010\"]\nmemory = \"2GiB\"\n";

fn denied(output: &Output, words: &[&str]) {
    let said = text(output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for words in words {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_users_grants_stay_within_its_limit_in_sum() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let mut manager = node.manager(LIMITS);
    let socket = manager.socket();
    let alice = |args: &[&str]| node.vcuda(&socket, ALICE, &[ALICE], args);
    succeeded(&alice(&[
        "grant", "create", "a", "--memory", "4GiB", "--cores", "20",
    ]));
    let large = ["grant", "create", "b", "--memory", "5GiB", "--cores", "20"];
    denied(
        &alice(&large),
        &[
            "user 61003 may have 8 GiB of GPU memory",
            "users.\"61003\"",
            "has 4 GiB",
            "asked for 5 GiB",
        ],
    );
    denied(
        &alice(&["grant", "create", "b", "--memory", "1GiB", "--cores", "31"]),
        &["50 % of GPU time", "has 20 %", "asked for 31 %"],
    );
    denied(
        &alice(&["grant", "create", "b", "--cores", "10"]),
        &["a whole GPU"],
    );
    denied(
        &alice(&[
            "grant",
            "create",
            "b",
            "--memory",
            "1GiB",
            "--cores",
            "1",
            "--priority",
            "high",
        ]),
        &["at most normal"],
    );
    // Changes count too, for a time as well; a restart forgets no owner.
    manager.kill_and_restart();
    denied(
        &alice(&["set", "a", "--memory", "9GiB"]),
        &["8 GiB", "has none", "asked for 9 GiB"],
    );
    denied(
        &alice(&["set", "a", "--memory", "9GiB", "--for", "1h"]),
        &["asked for 9 GiB"],
    );
    succeeded(&alice(&["set", "a", "--memory", "2GiB", "--for", "1h"]));
    denied(&alice(&large), &["has 4 GiB"]);
    succeeded(&alice(&["set", "a", "--memory", "3GiB"]));
    succeeded(&alice(&large));
    let list: Value = serde_json::from_str(&succeeded(&alice(&["grant", "list", "--json"]))).unwrap();
    assert_eq!(list["grants"][1]["user_uid"], 61003);
    assert!(succeeded(&alice(&["grant", "list"])).contains("user 61003"));
    succeeded(&alice(&["grant", "release", "b"]));
    // A new limit holds at once, and what is there stays.
    fs::write(node.configuration(), LIMITS.replace("8GiB", "1GiB")).unwrap();
    manager.signal(libc::SIGHUP);
    vcuda_tests::eventually("the limit is read", std::time::Duration::from_secs(30), || {
        text(&alice(&[
            "grant", "create", "b", "--memory", "1GiB", "--cores", "1",
        ]))
        .contains("may have 1 GiB")
    });
    succeeded(&alice(&["set", "a", "--memory", "2GiB"]));
}

#[test]
fn a_user_changes_no_grant_of_others_and_no_gpu() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let manager = node.manager(LIMITS);
    let socket = manager.socket();
    let by = |user: &str, groups: &[&str], args: &[&str]| node.vcuda(&socket, user, groups, args);
    let root = |args: &[&str]| succeeded(&node.fixture.vcuda(args).output().unwrap());
    root(&["grant", "create", "ops", "--memory", "1GiB"]);
    let bobs = ["grant", "create", "bobs", "--memory", "2GiB"];
    succeeded(&by(BOB, &[BOB, STUDENTS], &bobs));
    let alice = |args: &[&str]| by(ALICE, &[ALICE], args);
    for name in ["ops", "bobs"] {
        denied(
            &alice(&["set", name, "--memory", "1GiB"]),
            &["not a grant of user 61003"],
        );
        denied(
            &alice(&["grant", "release", name]),
            &["not a grant of user 61003"],
        );
    }
    denied(
        &alice(&["gpu", "cordon", "0"]),
        &["may change own grants only", "Node/Cordon"],
    );
    denied(
        &alice(&["grant", "create", "x", "--user", BOB, "--memory", "1GiB"]),
        &["may have own grants only"],
    );
    // The same name and amounts are not the same grant.
    let same = alice(&["grant", "create", "bobs", "--memory", "2GiB", "--cores", "100"]);
    assert!(!same.status.success(), "{}", text(&same));
    // Each member of a group has its limit, and neither has a stranger.
    denied(
        &by(BOB, &[BOB, STUDENTS], &["set", "bobs", "--memory", "3GiB"]),
        &["users.\"@61010\""],
    );
    let stranger = by(BOB, &[BOB], &["grant", "create", "y", "--memory", "1GiB"]);
    assert_eq!(stranger.status.code(), Some(69), "{}", text(&stranger));
    // Root makes a grant for a user: the user's limit holds, and the user may change it.
    let refused = node
        .fixture
        .vcuda(["grant", "create", "z", "--user", ALICE, "--memory", "9GiB"])
        .output()
        .unwrap();
    denied(&refused, &["user 61003 may have 8 GiB"]);
    root(&[
        "grant", "create", "z", "--user", ALICE, "--memory", "6GiB", "--cores", "30",
    ]);
    succeeded(&alice(&["set", "z", "--memory", "7GiB"]));
    // As root may give more than the limit, to whom it wants.
    root(&["set", "z", "--memory", "20GiB"]);
    succeeded(&alice(&["grant", "release", "z"]));
}
