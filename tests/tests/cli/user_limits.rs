//! Limits of users: each may have so much in sum over its grants, whoever makes them and whatever happens to the manager.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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
    succeeded(&alice(&["grant", "create", "a", "--memory", "4GiB", "--cores", "20"]));
    let large = ["grant", "create", "b", "--memory", "5GiB", "--cores", "20"];
    denied(
        &alice(&large),
        &["user 61003 may have 8 GiB of GPU memory", "users.\"61003\"", "has 4 GiB", "asked for 5 GiB"],
    );
    denied(
        &alice(&["grant", "create", "b", "--memory", "1GiB", "--cores", "31"]),
        &["50 % of GPU time", "has 20 %", "asked for 31 %"],
    );
    denied(&alice(&["grant", "create", "b", "--cores", "10"]), &["a whole GPU"]);
    denied(
        &alice(&["grant", "create", "b", "--memory", "1GiB", "--cores", "1", "--priority", "high"]),
        &["at most normal"],
    );
    // Changes count too, for a time as well; a restart forgets no owner.
    manager.kill_and_restart();
    denied(&alice(&["set", "a", "--memory", "9GiB"]), &["8 GiB", "has none", "asked for 9 GiB"]);
    denied(&alice(&["set", "a", "--memory", "9GiB", "--for", "1h"]), &["asked for 9 GiB"]);
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
        text(&alice(&["grant", "create", "b", "--memory", "1GiB", "--cores", "1"])).contains("may have 1 GiB")
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
    node.fixture.grant("ops", &["--memory", "1GiB"]);
    let bobs = ["grant", "create", "bobs", "--memory", "2GiB"];
    succeeded(&by(BOB, &[BOB, STUDENTS], &bobs));
    let alice = |args: &[&str]| by(ALICE, &[ALICE], args);
    for name in ["ops", "bobs"] {
        denied(&alice(&["set", name, "--memory", "1GiB"]), &["not a grant of user 61003"]);
        denied(&alice(&["grant", "release", name]), &["not a grant of user 61003"]);
    }
    denied(&alice(&["gpu", "cordon", "0"]), &["may change own grants only", "Node/Cordon"]);
    denied(
        &alice(&["grant", "create", "x", "--user", BOB, "--memory", "1GiB"]),
        &["may have own grants only"],
    );
    // The same name and amounts are not the same grant.
    let same = alice(&["grant", "create", "bobs", "--memory", "2GiB", "--cores", "100"]);
    assert!(!same.status.success(), "{}", text(&same));
    // Each member of a group has its limit, and neither has a stranger.
    denied(&by(BOB, &[BOB, STUDENTS], &["set", "bobs", "--memory", "3GiB"]), &["users.\"@61010\""]);
    let stranger = by(BOB, &[BOB], &["grant", "create", "y", "--memory", "1GiB"]);
    assert_eq!(stranger.status.code(), Some(69), "{}", text(&stranger));
    // Root makes a grant for a user: the user's limit holds, and the user may change it.
    let refused = node.fixture.output(["grant", "create", "z", "--user", ALICE, "--memory", "9GiB"]);
    denied(&refused, &["user 61003 may have 8 GiB"]);
    node.fixture.grant("z", &["--user", ALICE, "--memory", "6GiB", "--cores", "30"]);
    succeeded(&alice(&["set", "z", "--memory", "7GiB"]));
    // As root may give more than the limit, to whom it wants.
    node.fixture.stdout(["set", "z", "--memory", "20GiB"]);
    succeeded(&alice(&["grant", "release", "z"]));
    // The event of each change names its user, also of a change to that user's own grant.
    node.fixture.stdout(["gpu", "cordon", "0"]);
    node.fixture.stdout(["grant", "release", "ops"]);
    let events = node.fixture.events();
    for told in [
        "has 7 GiB and 30 % now, set by user 61003",
        "has 20 GiB and 30 % now, set by user root (0)",
        "was released by user 61003",
        "was cordoned by user root (0)",
        "ops-1 was released by user root (0)",
        "ops-1 was granted by user root (0)",
        "bobs-2 was granted by user 61004",
        "z-3 was granted by user root (0)",
    ] {
        assert_eq!(events.matches(told).count(), 1, "{told}: {events}");
    }
    assert_eq!(events.matches(" by user ").count(), 8, "{events}");
}

#[test]
fn a_user_runs_programs_in_its_own_grants_and_in_no_others() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let mut manager = node.manager(LIMITS);
    let socket = manager.socket();
    let alice = |args: &[&str]| node.vcuda(&socket, ALICE, &[ALICE], args);
    let bob = |args: &[&str]| node.vcuda(&socket, BOB, &[BOB, STUDENTS], args);
    succeeded(&alice(&["grant", "create", "a", "--memory", "4GiB", "--cores", "20"]));
    node.fixture.grant("ops", &["--memory", "1GiB"]);
    let directory = |name: &str| {
        let shown: Value =
            serde_json::from_str(&node.fixture.stdout(["grant", "show", name, "--json"])).unwrap();
        shown["grants"][0]["directory"].as_str().unwrap().to_owned()
    };
    let (hers, ops) = (directory("a"), directory("ops"));
    // It finds the quota at its place, writes what it uses there, and changes nothing else.
    let script = "cd \"$VCUDA_DIR\" && head -c1 limits >/dev/null && true <>usage && ! true >>limits && ! touch x && \
                  ! ls .. && ! mv . ../b && ! chmod 777 .. && echo used";
    let used = |by: Output| assert!(text(&by).contains("used\n"), "{}", text(&by));
    let run = ["run", "--sim", "--grant", "a", "--", "sh", "-c", script];
    used(alice(&run));
    // The shim in the program has loaded the quota.
    let said =
        text(&alice(&["run", "--sim", "--grant", "a", "--", "sh", "-c", "$0 doctor", &node.program()]));
    assert!(said.contains("4 GiB") && said.contains("a-1"), "{said}");
    // No other user and no other grant.
    for by in [&alice(&["run", "--grant", "ops", "--", "true"]), &bob(&["run", "--grant", "a", "--", "true"])]
    {
        assert!(!by.status.success(), "{}", text(by));
    }
    let entered = |user: &str, path: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--regid", user, "--clear-groups", "cat"]);
        command.arg(format!("{path}/limits")).output().unwrap().status.success()
    };
    assert_eq!(
        [entered(ALICE, &hers), entered(BOB, &hers), entered(ALICE, &ops), entered(BOB, &ops)],
        [true, false, false, false]
    );
    // The owner stays known after a crash, and with a damaged ledger and record: by the directory's path.
    manager.kill_and_restart();
    used(alice(&run));
    manager.kill();
    fs::write(manager.state().join("ledger.json"), "damaged").unwrap();
    fs::write(format!("{hers}/grant"), "damaged").unwrap();
    manager.start_again();
    used(alice(&run));
    succeeded(&alice(&["set", "a", "--memory", "2GiB"]));
    assert_eq!(directory("a"), hers);
    succeeded(&alice(&["grant", "release", "a"]));
    assert!(!Path::new(&hers).exists());
}

#[test]
fn a_users_limit_holds_for_runs_too() {
    if !is_other_users() {
        return;
    }
    let node = OtherUsers::new();
    let manager = node.manager(LIMITS);
    let socket = manager.socket();
    node.show_gpu(ALICE);
    let run = |memory: &str| {
        let script = "id -u; cat $VCUDA_DIR/limits >/dev/null && echo $VCUDA_DIR";
        let args =
            ["run", "--sim", "--name", "mine", "--memory", memory, "--cores", "20", "--", "sh", "-c", script];
        node.vcuda(&socket, ALICE, &[ALICE], &args)
    };
    denied(&run("9GiB"), &["user 61003 may have 8 GiB of GPU memory", "asked for 9 GiB"]);
    let said = succeeded(&run("4GiB"));
    assert!(said.starts_with("61003\n") && said.trim_end().ends_with("/users/61003/mine"), "{said}");
}
