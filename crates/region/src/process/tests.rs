//! Liveness, asked of real processes.

use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};

fn child(command: &str) -> (Child, Identity) {
    let child = Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn().unwrap();
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let start_ticks = Stat::parse(&text).unwrap().start_ticks;
    let identity = Identity { pid: child.id(), start_ticks, ..Identity::current().unwrap() };
    (child, identity)
}

#[test]
fn a_stat_line_with_brackets_in_the_name() {
    let line = "12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 4711 1 1";
    let stat = Stat::parse(line).unwrap();
    assert_eq!((stat.name, stat.state, stat.threads, stat.start_ticks), ("a) b", "S", 3, 4711));
    assert!(Stat::parse("").is_none());
    assert!(Stat::parse("12 (a) S").is_none());
}

#[test]
fn a_name_that_is_no_utf8_is_no_obstacle() {
    let view = ProcessView::new(Identity::current().unwrap());
    // A name of the thread group's first thread is what `/proc/PID/stat` shows: a program's, so one is started.
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join(OsStr::from_bytes(b"\xff\xfe"));
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let mut child = Command::new(&program).arg("60").spawn().unwrap();
    let path = format!("/proc/{}/stat", child.id());
    // Between fork and exec the child still has this program's name.
    let text = loop {
        let bytes = fs::read(&path).unwrap();
        if std::str::from_utf8(&bytes).is_err() {
            break read(&path).unwrap();
        }
        std::thread::yield_now();
    };
    let identity = Identity {
        pid: child.id(),
        start_ticks: Stat::parse(&text).unwrap().start_ticks,
        ..Identity::current().unwrap()
    };
    assert_eq!(view.liveness(&identity), Liveness::Alive);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(view.liveness(&identity), Liveness::Dead);
}

#[test]
fn a_process_lives_until_it_is_killed_and_a_zombie_is_dead() {
    let me = Identity::current().unwrap();
    let view = ProcessView::new(me);
    let brief = ProcessView::brief(me);
    assert_eq!(view.liveness(&me), Liveness::Alive);
    let (mut child, identity) = child("read line");
    assert_eq!(view.liveness(&identity), Liveness::Alive);
    assert_ne!(brief.liveness(&identity), Liveness::Dead);
    let reused = Identity { start_ticks: identity.start_ticks - 1, ..identity };
    assert_eq!(view.liveness(&reused), Liveness::Dead);
    child.kill().unwrap();
    let is_zombie = || view.liveness(&identity) == Liveness::Dead;
    while !is_zombie() {
        std::thread::yield_now();
    }
    assert_eq!(brief.liveness(&identity), Liveness::Dead, "a zombie");
    child.wait().unwrap();
    assert_eq!(view.liveness(&identity), Liveness::Dead);
    assert_eq!(brief.liveness(&identity), Liveness::Dead);
}

#[test]
fn a_process_of_a_namespace_that_is_gone_is_dead_only_to_who_sees_all() {
    let me = Identity::current().unwrap();
    let stranger = Identity { pid_namespace: 1, pid: 4_194_301, ..me };
    let expected = if me.pid_namespace == FIRST_PID_NAMESPACE { Liveness::Dead } else { Liveness::Unknown };
    assert_eq!(ProcessView::new(me).liveness(&stranger), expected);
}

#[test]
fn a_pid_and_a_namespace_that_were_given_out_again_are_another_process() {
    let me = Identity::current().unwrap();
    let view = ProcessView::new(me);
    let line = "1 (sleep) S 0 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
    let stat = Stat::parse(line).unwrap();
    let started = |start_ticks| Identity { pid: 1, start_ticks, pid_namespace: me.pid_namespace ^ 1, ..me };
    assert_eq!(view.liveness_by_stat(&stat, &started(4711)), Liveness::Alive);
    assert_eq!(view.liveness_by_stat(&stat, &started(4710)), Liveness::Dead);
    // With a clock of its own, the times cannot be compared.
    let elsewhere = Identity { time_namespace: me.time_namespace ^ 1, ..started(4710) };
    assert_eq!(view.liveness_by_stat(&stat, &elsewhere), Liveness::Alive);
}

#[test]
fn another_process_is_seen_as_it_sees_itself() {
    let me = Identity::current().unwrap();
    assert_eq!(Identity::of(me.pid).unwrap(), me);
    let (mut child, identity) = child("read line");
    assert!(Identity::of(child.id()).unwrap().is_same(&identity));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(Identity::of(child.id()).is_err());
}

#[test]
fn the_inner_pid_is_the_last_of_several() {
    assert_eq!(inner_pid("Name:\ta\nNSpid:\t4711\t12\t1\nX:\t3\n"), Some(1));
    assert_eq!(inner_pid("Name:\ta\nNSpid:\t4711\n"), None);
    assert_eq!(inner_pid("Name:\ta\n"), None);
}

#[test]
fn the_environment_of_a_process_that_starts_is_waited_for() {
    for _ in 0..100 {
        let mut child = Command::new("sleep").arg("1000").env("MEANT", "yes").spawn().unwrap();
        // The kernel lets the parent go on a moment before the child leaves the parent's memory (Linux, `exec_mmap`).
        let own = fs::read("/proc/self/environ").unwrap();
        let mut all = std::iter::repeat_with(|| environment(&folder_of(child.id())).unwrap());
        let variables = all.find(|variables| *variables != own).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(variables.split(|byte| *byte == 0).any(|one| one == b"MEANT=yes"));
    }
}

#[test]
fn the_groups_of_a_peer_are_its_own() {
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut groups = peer_groups(&ours).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
    let mut own: Vec<u32> = line.split_ascii_whitespace().map(|group| group.parse().unwrap()).collect();
    own.sort_unstable();
    groups.sort_unstable();
    assert_eq!(groups, own);
    assert!(peer_groups(&fs::File::open("/dev/null").unwrap()).is_err());
}
