//! Programs, shims and managers of different releases: the one before, this one and the one after, each shim with each
//! manager, while a program runs. Quotas hold to the byte. Incompatible ones are refused with both versions, and nothing
//! else happens.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use vcuda_region::layout::{OLDEST_VERSION, VERSION};
use vcuda_region::registration;
use vcuda_region::release::{self, NUMBER};
use vcuda_tests::{
    Commanded, Door, Fixture, GIB, Manager, Programs, Speaks, app, holding, release_dir, soon, succeeded,
    text,
};

const NOW: Speaks = Speaks {
    layouts: (OLDEST_VERSION, VERSION),
    protocols: (registration::OLDEST, registration::VERSION),
    later: 0,
};
const BEFORE: Speaks = Speaks { layouts: (OLDEST_VERSION - 1, VERSION - 1), later: -1, ..NOW };
const AFTER: Speaks = Speaks {
    layouts: (OLDEST_VERSION + 1, VERSION + 1),
    protocols: (registration::OLDEST, registration::VERSION + 1),
    later: 1,
};

/// Runs `vcuda` of this release.
fn vcuda(fixture: &Fixture, release: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(release.join("vcuda"));
    fixture.environment(&mut command);
    command.args(args).output().unwrap()
}

/// A command in this grant, as `manager`'s release starts it, with the shim of another.
fn in_grant(fixture: &Fixture, manager: &Path, shim: &Path, grant: &str) -> Command {
    let shown = succeeded(&vcuda(fixture, manager, &["run", "--sim", "--grant", grant, "--", "env"]));
    let mut command = Command::new(app("obey", Door::Dlsym));
    command
        .env_clear()
        .envs(shown.lines().filter_map(|line| line.split_once('=')))
        .env("LD_PRELOAD", shim.join("libvcuda_shim.so"))
        .stdin(Stdio::null());
    command
}

fn attaches(manager: &Manager<'_>, id: &str) {
    soon("it has registered", || manager.metric("vcuda_shim_attached", &format!("container=\"{id}\"")) > 0.5);
}

/// A running program, and its allocated memory.
struct Tenant {
    id: String,
    program: Commanded,
    limit_gib: u64,
    /// Layout of its files.
    layout: u32,
}

/// Events of `vcuda events` about tenants with an older library, each as often as counted.
fn older(fixture: &Fixture) -> Vec<String> {
    let told = fixture.events();
    let is_one = |line: &&str| line.contains("VcudaOlderShim");
    told.lines().filter(is_one).map(str::to_owned).collect()
}

#[test]
fn an_older_library_is_told_once_and_is_no_finding() {
    let fixture = Fixture::new();
    let before = Programs::new(BEFORE);
    let now = release_dir();
    let manager = fixture.manager();
    for name in ["a", "b"] {
        fixture.grant(name, &["--memory", "1GiB", "--cores", "10"]);
    }
    let programs = [
        in_grant(&fixture, &now, &now, "b"),
        in_grant(&fixture, &now, before.folder(), "a"),
        in_grant(&fixture, &now, before.folder(), "a"),
    ]
    .map(|mut command| Commanded::start(&mut command));
    attaches(&manager, "b-2");
    let (old, new) = (NUMBER.checked_sub(1).unwrap(), NUMBER);
    let (old, new) = (release::name(old), release::name(new));
    let said = format!("of a-1 have loaded libvcuda_shim {old}, the manager is {new}: they work together");
    soon("the older library is an event", || !older(&fixture).is_empty());
    // Waits for three more looks, as another finding shows: the older library is in no figure, and no other process is
    // named.
    let stranger = holding(&mut fixture.bare(app("hold", Door::Dlsym)), GIB);
    soon("later looks", || fixture.events().contains("VcudaUnregistered"));
    let told = older(&fixture);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains(&said), "{told:?}");
    assert_eq!(manager.metric("vcuda_audit_findings", "container=\"a-1\""), 0.0);
    drop((programs, stranger));
}

fn go_together(one: u32, other: u32) -> bool {
    one.abs_diff(other) <= 1
}

/// Runs a shim with one manager after another, each of which grants, and changes existing grants.
fn a_shim_meets_managers(shim: Speaks, managers: &[Speaks]) {
    let fixture = Fixture::new();
    let of_shim = Programs::new(shim);
    let releases: Vec<Programs> = managers.iter().map(|speaks| Programs::new(*speaks)).collect();
    let mut manager = fixture.manager_of(releases[0].folder(), &[]);
    let mut tenants: Vec<Tenant> = Vec::new();
    for (turn, (speaks, release)) in managers.iter().zip(&releases).enumerate() {
        let release = release.folder();
        if turn > 0 {
            manager.change_to(release);
        }
        for tenant in &mut tenants {
            let what = format!("{shim:?} {speaks:?} {}", tenant.id);
            tenant.program.lives();
            assert_eq!(tenant.program.info().1, tenant.limit_gib * GIB, "{what}");
            tenant.program.fills_to_the_byte();
            let size = format!("{}GiB", tenant.limit_gib + 1);
            let set = vcuda(&fixture, release, &["set", &tenant.id, "--memory", &size]);
            if go_together(tenant.layout, speaks.layouts.1) {
                succeeded(&set);
                tenant.limit_gib += 1;
                attaches(&manager, &tenant.id);
            } else {
                assert!(!set.status.success(), "{what}");
                let said = format!("layout version {}", tenant.layout);
                assert!(text(&set).contains(&said), "{what}: {}", text(&set));
            }
            assert_eq!(tenant.program.info().1, tenant.limit_gib * GIB, "{what}");
            tenant.program.fills_to_the_byte();
        }
        let name = format!("turn{turn}");
        succeeded(&vcuda(
            &fixture,
            release,
            &["grant", "create", &name, "--memory", "2GiB", "--cores", "10"],
        ));
        let id = format!("{name}-{}", turn + 1);
        let mut command = in_grant(&fixture, release, of_shim.folder(), &name);
        if go_together(shim.layouts.1, speaks.layouts.1) {
            tenants.push(Tenant {
                program: Commanded::start(&mut command),
                id,
                limit_gib: 2,
                layout: speaks.layouts.1,
            });
        } else {
            // It grants no memory and logs the reason: a quota is never misread.
            let log = fixture.runtime().join("shim.log");
            let refused = command.env("VCUDA_LOG", &log).output().unwrap();
            assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
            let logged = fs::read_to_string(&log).unwrap();
            let both = [
                format!("has layout version {}", speaks.layouts.1),
                format!("this program uses {} to {}", shim.layouts.0, shim.layouts.1),
            ];
            assert!(both.iter().all(|words| logged.contains(words)), "{logged}");
        }
    }
    assert!(!tenants.is_empty());
}

#[test]
fn a_shim_of_this_release_meets_managers_of_each() {
    a_shim_meets_managers(NOW, &[BEFORE, NOW, AFTER, NOW, BEFORE]);
}

#[test]
fn a_shim_of_the_release_before_meets_managers_of_each() {
    a_shim_meets_managers(BEFORE, &[BEFORE, NOW, AFTER, NOW]);
}

#[test]
fn a_shim_of_the_release_after_meets_managers_of_each() {
    a_shim_meets_managers(AFTER, &[NOW, AFTER, BEFORE, NOW]);
}

#[test]
fn who_speaks_another_protocol_is_not_registered_and_has_its_quota() {
    let fixture = Fixture::new();
    let now = Programs::new(NOW);
    let other = Programs::new(Speaks {
        protocols: (registration::VERSION + 1, registration::VERSION + 1),
        later: 1,
        ..NOW
    });
    let mut manager = fixture.manager_of(now.folder(), &[]);
    succeeded(&vcuda(&fixture, now.folder(), &["grant", "create", "a", "--memory", "2GiB"]));
    let mut program = Commanded::start(&mut in_grant(&fixture, now.folder(), other.folder(), "a"));
    let refused = || manager.metric("vcuda_registrations_total", "result=\"malformed\"");
    soon("it is refused", || refused() > 0.0);
    program.fills_to_the_byte();
    succeeded(&vcuda(&fixture, now.folder(), &["set", "a", "--memory", "3GiB"]));
    assert_eq!(program.info().1, 3 * GIB);
    program.fills_to_the_byte();
    assert!(manager.metric("vcuda_shim_attached", "container=\"a-1\"") < 0.5);
    // It does not retry repeatedly, but a manager with a common version knows it.
    let before = refused();
    manager.change_to(other.folder());
    attaches(&manager, "a-1");
    assert!(before < 5.0, "{before}");
    program.fills_to_the_byte();
}
