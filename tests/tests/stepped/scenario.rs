//! Surroundings of the first process.

use vcuda_tests::tracer::Traced;
use vcuda_tests::{Door, Fixture, Tenant, app};

use super::peer::Peer;
use super::{BYTES, CONTEXT, LIMIT};

/// The shim's file.
const SHIM: &str = "libvcuda_shim.so";

/// Task of the first process, as `steps.c` names it, and the owner of the memory that it opens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) from: From,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// It opens nothing.
    Nothing,
    /// The second process's, which keeps it.
    Peer,
    /// The second process's, which lets go of it while the first one stands.
    LeavingPeer,
    /// A process's outside of the tenant.
    Outside,
}

/// Surroundings of the first process.
pub(super) struct Scenario<'b> {
    fixture: &'b Fixture,
    pub(super) tenant: Tenant<'b>,
    pub(super) peer: Peer,
    outside: Option<(Peer, String)>,
    kind: Kind,
}

impl<'b> Scenario<'b> {
    pub(super) fn new(fixture: &'b Fixture, kind: Kind) -> Self {
        let tenant = fixture.keep("stepped", &["--memory", &LIMIT.to_string()]);
        let peer = Peer::start(&mut tenant.command(app("peer", Door::Dlsym)));
        let outside = (kind.from == From::Outside).then(|| {
            let mut outside = Peer::start(&mut fixture.bare(app("peer", Door::Dlsym)));
            let handle = outside.export(BYTES);
            (outside, handle)
        });
        Scenario {
            fixture,
            tenant,
            peer,
            outside,
            kind,
        }
    }

    /// The handle to open next, in memory that the second process may have exported for it.
    pub(super) fn handle(&mut self) -> String {
        match self.kind.from {
            From::Nothing => String::new(),
            From::Peer | From::LeavingPeer => self.peer.export(BYTES),
            From::Outside => self.outside.as_ref().unwrap().1.clone(),
        }
    }

    /// The second process lets go of what it exported.
    pub(super) fn drop_export(&mut self) {
        if matches!(self.kind.from, From::Peer | From::LeavingPeer) {
            self.peer.drop_export();
        }
    }

    /// The first process, before its first round.
    pub(super) fn start(&mut self) -> Traced {
        let handle = self.handle();
        let traced = start(&self.tenant, self.kind.name, BYTES, &handle);
        self.drop_export();
        traced
    }

    /// Memory on the GPU beside this tenant (bytes).
    pub(super) fn outside_bytes(&self) -> u64 {
        self.outside.as_ref().map_or(0, |_| CONTEXT + BYTES)
    }

    /// The tenant never had more than its quota.
    pub(super) fn judge(&self) {
        let peak = self.fixture.report()["gpus"][0]["memory_peak_bytes"]
            .as_u64()
            .unwrap();
        // A context is made before what it takes is known, unless one like it has been.
        assert!(peak <= LIMIT + self.outside_bytes(), "{peak}");
    }
}

/// A process of `steps.c`, before its first round.
pub(super) fn start(tenant: &Tenant<'_>, kind: &str, bytes: u64, handle: &str) -> Traced {
    let mut command = tenant.command(app("steps", Door::Dlsym));
    let mut traced = Traced::start(command.args([kind, &bytes.to_string()]));
    traced.say(handle);
    traced.run_to_first_mark(SHIM);
    traced
}
