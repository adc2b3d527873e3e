//! Environment of the first process.

use vcuda_tests::tracer::Traced;
use vcuda_tests::{Door, Fixture, Tenant, app};

use super::peer::Peer;
use super::{BYTES, CONTEXT, LIMIT};

/// The shim's file.
const SHIM: &str = "libvcuda_shim.so";

/// Task of the first process, named as in `steps.c`, and the owner of the memory that it opens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) from: From,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// No memory is opened.
    Nothing,
    /// The second process, which keeps it.
    Peer,
    /// The second process, which releases it while the first one is stopped.
    LeavingPeer,
    /// A process outside of the tenant.
    Outside,
}

/// Environment of the first process.
pub(super) struct Scenario<'b> {
    fixture: &'b Fixture,
    pub(super) tenant: Tenant<'b>,
    pub(super) peer: Peer,
    outside: Option<(Peer, String)>,
    kind: Kind,
}

impl<'b> Scenario<'b> {
    pub(super) fn new(fixture: &'b Fixture, kind: Kind) -> Self {
        let tenant = fixture.keep("stepped", &["--memory", &format!("{LIMIT}B")]);
        let peer = Peer::start(&mut tenant.command(app("peer", Door::Dlsym)));
        let outside = (kind.from == From::Outside).then(|| {
            let mut outside = Peer::start(&mut fixture.bare(app("peer", Door::Dlsym)));
            let handle = outside.export(BYTES);
            (outside, handle)
        });
        Scenario { fixture, tenant, peer, outside, kind }
    }

    /// The handle to open next, of memory that the second process may have exported for it.
    pub(super) fn handle(&mut self) -> String {
        match self.kind.from {
            From::Nothing => String::new(),
            From::Peer | From::LeavingPeer => self.peer.export(BYTES),
            From::Outside => self.outside.as_ref().unwrap().1.clone(),
        }
    }

    /// Lets the second process release its export.
    pub(super) fn drop_export(&mut self) {
        if matches!(self.kind.from, From::Peer | From::LeavingPeer) {
            self.peer.drop_export();
        }
    }

    /// Starts the first process, up to its first round.
    pub(super) fn start(&mut self) -> Traced {
        let handle = self.handle();
        let traced = start(&self.tenant, self.kind.name, BYTES, &handle);
        self.drop_export();
        traced
    }

    /// Memory on the GPU outside of this tenant (bytes).
    pub(super) fn outside_bytes(&self) -> u64 {
        self.outside.as_ref().map_or(0, |_| CONTEXT + BYTES)
    }

    /// Checks that the tenant never exceeded its quota.
    pub(super) fn judge(&self) {
        let peak = self.fixture.peak_bytes(0);
        // A context is made before its size is known, unless there was one like it.
        assert!(peak <= LIMIT + self.outside_bytes(), "{peak}");
    }
}

/// Starts a process of `steps.c`, up to its first round.
pub(super) fn start(tenant: &Tenant<'_>, kind: &str, bytes: u64, handle: &str) -> Traced {
    let mut command = tenant.command(app("steps", Door::Dlsym));
    let mut traced = Traced::start(command.args([kind, &bytes.to_string()]));
    traced.say(handle);
    traced.run_to_first_mark(SHIM);
    traced
}
