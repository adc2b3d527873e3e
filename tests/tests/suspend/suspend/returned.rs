//! Memory of a suspended tenant that would come back without the manager.

use vcuda_region::process::Identity;
use vcuda_tests::{Door, Fixture, release_dir, soon};

use super::{Program, SMALL, done, state, suspendable};

/// `CUDA_ERROR_NOT_PERMITTED`.
const NOT_PERMITTED: &str = "800";

#[test]
fn a_suspended_tenant_cannot_restore_itself() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    assert_ne!(program.ask("restore"), NOT_PERMITTED, "the driver's own answer while it runs");
    done(&fixture, "suspend", "a", "a-1", "suspended");
    assert_eq!(program.ask("restore"), NOT_PERMITTED);
    assert_eq!((fixture.used_bytes(), state(&fixture, "a-1")), (0, "suspended".into()));
    assert_eq!(program.ask("copy"), "0 intact");
}

#[test]
fn memory_that_another_program_restores_is_suspended_anew() {
    let fixture = Fixture::with_config(SMALL);
    let _manager = fixture.manager();
    suspendable(&fixture, "a");
    let mut program = Program::in_grant(&fixture, "a", Door::Link);
    let pid = program.0.0.id();
    let start_ticks = Identity::of(pid).unwrap().start_ticks.to_string();
    let step = |step: &str| {
        let mut command = fixture.bare(release_dir().join("vcuda-checkpoint"));
        command.args([step, "--pid", &pid.to_string(), "--start-ticks", &start_ticks]);
        command.output().unwrap().status.success()
    };
    // Its state may be locked, or run.
    for steps in [&["restore"][..], &["restore", "unlock"]] {
        done(&fixture, "suspend", "a", "a-1", "suspended");
        assert_eq!(fixture.used_bytes(), 0);
        assert!(step(steps[0]));
        // It may be away again by now.
        for one in &steps[1..] {
            let _ = step(one);
        }
        soon("it is away again", || fixture.used_bytes() == 0);
        assert_eq!(state(&fixture, "a-1"), "suspended");
        let events = fixture.events();
        assert!(events.contains("VcudaReturned"), "{events}");
        assert_eq!(program.ask("copy"), "0 intact", "{steps:?}");
    }
}
