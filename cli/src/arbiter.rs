//! `vcuda arbiter`: divides GPU time between the tenants of one user, as [`vcuda_arbiter`] does. The leader starts a
//! standby.

mod standby;

use std::ops::ControlFlow;

use vcuda_arbiter::{Role, Runner, Step};

use self::standby::Standby;
use crate::config::Environment;
use crate::failure::Failure;

/// Runs until no tenant is left or a manager arbitrates. It keeps a standby unless `alone`.
pub(crate) fn arbiter(alone: bool, environment: &Environment) -> Result<(), Failure> {
    let root = environment.runtime_root()?;
    let mut standby = Standby::default();
    let mut step = |step: Step| {
        if step.leads && !alone {
            // A standby that cannot be started is tried again at the next step.
            let _ = standby.check(&root, step.now_ns);
        }
        ControlFlow::Continue(())
    };
    let ran = Runner::new(&root, Role::Process).and_then(|runner| runner.run(&mut step));
    ran.map_err(|error| Failure::access("arbitrate under", &root, &error))
}
