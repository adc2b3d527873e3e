//! Memory shared by processes: charged once in a tenant, at its exporter; from outside, at the importer. It counts while a
//! process holds it, whichever process dies when. Judged by the simulated machine's record (I7, I8).

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use vcuda_tests::{Door, Fixture, MIB, Running, Tenant, app, eventually};

/// Small contexts that cost whole blocks, and exact figures.
const MACHINE: &str = "context_bytes = \"4MiB\"\ngranularity_bytes = 1\n[[gpus]]\nmemory_bytes = \"8GiB\"\n";
/// Memory of a context, with the variable of the programs' module (bytes).
const CONTEXT: u64 = 4 * MIB + 8;
const SHARED: u64 = 64 * MIB;
const KINDS: [&str; 5] = ["ipc", "file", "external", "pool", "multicast"];
/// Time within which dead processes are forgotten (I8).
const SOON: Duration = Duration::from_secs(1);

/// A process of `apps/sharing.c`.
struct Peer {
    running: RefCell<Running>,
    path: PathBuf,
}

impl Peer {
    fn start(fixture: &Fixture, tenant: &Tenant<'_>, name: &str) -> Self {
        let path = fixture.runtime().join(name);
        let mut command = tenant.command(app("sharing", Door::Dlsym));
        let running = Running::ready(command.arg(&path), "ready");
        Peer { running: RefCell::new(running), path }
    }

    fn ask(&self, words: &str) -> String {
        let mut running = self.running.borrow_mut();
        running.tell(words);
        running.wait_for("")
    }

    fn does(&self, words: &str) {
        assert_eq!(self.ask(words), "done", "{words}");
    }

    /// Passes the other process's export to this one, which opens it.
    fn takes_from(&self, other: &Peer) {
        self.hears_of(other);
        self.does("take");
        assert_eq!(self.ask("read"), "good");
    }

    fn hears_of(&self, other: &Peer) {
        other.does(&format!("send {}", self.path.display()));
    }

    /// Memory of the tenant as reported to its processes (bytes).
    fn used(&self) -> u64 {
        self.ask("used").parse().unwrap()
    }

    fn killed(self) {
        let mut running = self.running.into_inner();
        running.kill();
    }

    fn ends(self) {
        let mut running = self.running.into_inner();
        drop(running.0.stdin.take());
        running.wait_for("passed sharing");
        assert!(running.finish().success());
    }
}

/// Waits until the tenant's figure is `bytes`; the GPU's must be equal, as there is one tenant.
fn becomes(fixture: &Fixture, witness: &Peer, bytes: u64, what: &str) {
    let mut figures = (0, 0);
    let end = std::time::SystemTime::now() + SOON;
    while figures != (bytes, bytes) {
        assert!(
            std::time::SystemTime::now() < end,
            "{what}: the container says {}, the GPU {}, and it should be {bytes}",
            figures.0,
            figures.1
        );
        figures = (witness.used(), fixture.used_bytes());
    }
}

/// Ends the processes, and checks that all memory is freed.
fn end(fixture: &Fixture, peers: Vec<Peer>) {
    peers.into_iter().for_each(Peer::ends);
    eventually("the GPU has all back", SOON, || fixture.used_bytes() == 0);
}

/// Checks that nothing counts any more, and that the GPU's peak was at most `most` (bytes).
fn ends_clean(fixture: &Fixture, most: u64) {
    let smi = fixture.smi();
    for tenant in smi["gpus"][0]["tenants"].as_array().unwrap() {
        assert_eq!(tenant["memory_used_bytes"], 0, "{smi}");
    }
    let peak = fixture.peak_bytes(0);
    assert!(peak <= most, "{peak} of {most}");
}

/// Several processes hold it, one opened it twice: it counts once, until the last one releases it.
#[test]
fn a_container_pays_once_for_what_its_processes_share() {
    let fixture = Fixture::with_config(MACHINE);
    // Room for the contexts, for the shared memory, and for half of it again.
    let quota = 3 * CONTEXT + SHARED + SHARED / 2;
    let tenant = fixture.keep("one", &["--memory", &format!("{quota}B")]);
    for kind in KINDS {
        let [maker, first, second] =
            ["maker", "first", "second"].map(|name| Peer::start(&fixture, &tenant, name));
        let base = 3 * CONTEXT;
        becomes(&fixture, &maker, base, kind);
        maker.does(&format!("make {kind} 64"));
        for peer in [&first, &second] {
            peer.takes_from(&maker);
            assert_eq!([peer.used(), fixture.used_bytes()], [base + SHARED; 2], "{kind}");
        }
        first.does("again");
        assert_eq!(first.ask("read"), "good");
        assert_eq!([first.used(), fixture.used_bytes()], [base + SHARED; 2], "{kind}");
        // The rest of the quota is available.
        assert_eq!(second.ask("make ipc 33"), "CUDA_ERROR_OUT_OF_MEMORY", "{kind}");
        second.does("make ipc 32");
        assert_eq!([first.used(), fixture.used_bytes()], [quota; 2], "{kind}");
        second.does("free");
        first.does("let");
        assert_eq!(first.ask("read"), "good");
        assert_eq!([first.used(), fixture.used_bytes()], [base + SHARED; 2], "{kind}");
        maker.does("free");
        for peer in [&first, &second] {
            peer.does("forget");
        }
        assert_eq!(
            [first.used(), fixture.used_bytes()],
            [base + SHARED; 2],
            "{kind}: freed, and held by two"
        );
        first.does("let");
        assert_eq!(second.ask("read"), "good");
        assert_eq!([first.used(), fixture.used_bytes()], [base + SHARED; 2], "{kind}: one has let go");
        second.does("let");
        becomes(&fixture, &first, base, kind);
        end(&fixture, vec![maker, first, second]);
    }
    ends_clean(&fixture, quota);
}

/// The exporter's stream has yet to free it, so the driver lets others import it: the tenant still counts it, and importers
/// pay nothing.
#[test]
fn what_a_stream_has_yet_to_free_can_be_imported() {
    let fixture = Fixture::with_config(MACHINE);
    let quota = 2 * CONTEXT + SHARED + SHARED / 2;
    let tenant = fixture.keep("one", &["--memory", &format!("{quota}B")]);
    let [maker, importer] = ["maker", "importer"].map(|name| Peer::start(&fixture, &tenant, name));
    maker.does("make pool 64");
    importer.hears_of(&maker);
    maker.does("later");
    importer.does("take");
    assert_eq!(importer.ask("read"), "good");
    maker.does("now");
    becomes(&fixture, &importer, 2 * CONTEXT + SHARED, "freed, and held by one");
    importer.does("let");
    becomes(&fixture, &importer, 2 * CONTEXT, "let go of");
    end(&fixture, vec![maker, importer]);
    ends_clean(&fixture, quota);
}

/// Whoever dies, memory of living holders counts once, and ends with the last of them.
#[test]
fn the_dead_hold_nothing_and_the_living_keep_what_they_hold() {
    let fixture = Fixture::with_config(MACHINE);
    let quota = 4 * CONTEXT + SHARED + MIB;
    let tenant = fixture.keep("one", &["--memory", &format!("{quota}B")]);
    for kind in KINDS {
        let [maker, first, second, witness] =
            ["maker", "first", "second", "witness"].map(|name| Peer::start(&fixture, &tenant, name));
        maker.does(&format!("make {kind} 64"));
        for peer in [&first, &second] {
            peer.takes_from(&maker);
            peer.does("forget");
        }
        becomes(&fixture, &witness, 4 * CONTEXT + SHARED, kind);
        // Kills an importer.
        first.killed();
        becomes(&fixture, &witness, 3 * CONTEXT + SHARED, &format!("{kind}: an importer died"));
        assert_eq!(second.ask("read"), "good");
        // Kills the exporter.
        maker.killed();
        becomes(&fixture, &witness, 2 * CONTEXT + SHARED, &format!("{kind}: the exporter died"));
        assert_eq!(second.ask("read"), "good");
        assert_eq!(witness.ask("make ipc 65"), "CUDA_ERROR_OUT_OF_MEMORY");
        // Kills the last one.
        second.killed();
        becomes(&fixture, &witness, CONTEXT, &format!("{kind}: the last one died"));
        witness.does("make ipc 64");
        witness.does("free");
        // A tenant whose only importer releases the memory in order.
        let [maker, last] = ["anew", "last"].map(|name| Peer::start(&fixture, &tenant, name));
        maker.does(&format!("make {kind} 64"));
        last.takes_from(&maker);
        last.does("forget");
        maker.killed();
        becomes(&fixture, &witness, 2 * CONTEXT + SHARED, &format!("{kind}: the exporter died, again"));
        last.does("let");
        becomes(&fixture, &witness, 2 * CONTEXT, &format!("{kind}: let go in order"));
        end(&fixture, vec![last, witness]);
    }
    ends_clean(&fixture, quota);
}

/// Two threads open the same memory at once: it counts until both have closed it, as the driver counts openings.
#[test]
fn what_two_threads_open_is_paid_for_until_both_have_closed_it() {
    let fixture = Fixture::with_config(MACHINE);
    let [home, other] = ["home", "other"].map(|name| fixture.keep(name, &["--memory", "200MiB"]));
    let maker = Peer::start(&fixture, &home, "maker");
    let importer = Peer::start(&fixture, &other, "importer");
    maker.does("make ipc 64");
    importer.takes_from(&maker);
    importer.does("let");
    for _ in 0..30 {
        importer.does("twice");
        assert_eq!(importer.used(), CONTEXT + SHARED);
        importer.does("let");
        assert_eq!(importer.used(), CONTEXT + SHARED, "one of them has it open");
        importer.does("let");
        assert_eq!(importer.used(), CONTEXT);
    }
    end(&fixture, vec![maker, importer]);
}

/// The tenant's table has room for 1,024 objects. An export beyond is refused; all else works, to the byte, and one more export
/// works as soon as one of the objects is gone.
#[test]
fn an_export_beyond_1024_objects_is_refused() {
    const BLOCK: u64 = 2 * MIB;
    let fixture = Fixture::with_config(MACHINE);
    let quota = 2 * CONTEXT + 1025 * BLOCK;
    let tenant = fixture.keep("one", &["--memory", &format!("{quota}B")]);
    let [first, second] = ["first", "second"].map(|name| Peer::start(&fixture, &tenant, name));
    second.does("make file 2");
    first.takes_from(&second);
    assert_eq!(first.ask("export 1000"), "1000");
    assert_eq!(second.ask("export 100"), "23");
    let full = 2 * CONTEXT + 1024 * BLOCK;
    for peer in [&first, &second] {
        assert_eq!(peer.ask("export 1"), "0");
        assert_eq!([peer.used(), fixture.used_bytes()], [full; 2]);
    }
    assert_eq!(first.ask("read"), "good");
    assert_eq!(first.ask("make ipc 3"), "CUDA_ERROR_OUT_OF_MEMORY");
    first.does("unexport");
    becomes(&fixture, &first, full - BLOCK, "one is gone");
    assert_eq!(second.ask("export 2"), "1");
    assert_eq!([first.used(), fixture.used_bytes()], [full; 2]);
    first.does("let");
    first.does("forget");
    second.does("free");
    end(&fixture, vec![first, second]);
    ends_clean(&fixture, full + BLOCK);
}

/// From another tenant: charged there too, once, however many of its processes open it; refused if it does not fit.
#[test]
fn what_comes_from_outside_is_paid_for_by_its_importers() {
    let fixture = Fixture::with_config(MACHINE);
    let fits = 2 * CONTEXT + SHARED;
    let tenants = [("home", fits), ("roomy", fits), ("tight", fits - 1)];
    let tenants = tenants.map(|(name, bytes)| fixture.keep(name, &["--memory", &format!("{bytes}B")]));
    for kind in KINDS {
        let maker = Peer::start(&fixture, &tenants[0], "maker");
        let [first, second] = ["first", "second"].map(|name| Peer::start(&fixture, &tenants[1], name));
        let [tight, beside] = ["tight", "beside"].map(|name| Peer::start(&fixture, &tenants[2], name));
        maker.does(&format!("make {kind} 64"));
        assert_eq!(maker.used(), CONTEXT + SHARED);
        first.takes_from(&maker);
        assert_eq!(first.used(), 2 * CONTEXT + SHARED, "{kind}");
        second.takes_from(&maker);
        second.does("again");
        assert_eq!(second.used(), 2 * CONTEXT + SHARED, "{kind}");
        assert_eq!(maker.used(), CONTEXT + SHARED, "{kind}");
        tight.hears_of(&maker);
        assert_eq!(tight.ask("take"), "CUDA_ERROR_OUT_OF_MEMORY", "{kind}");
        assert_eq!(beside.used(), 2 * CONTEXT, "{kind}");
        for peer in [&first, &second, &tight] {
            peer.does("forget");
        }
        // The GPU counts it once.
        assert_eq!(fixture.used_bytes(), 5 * CONTEXT + SHARED, "{kind}");
        maker.killed();
        eventually("it is the importers' alone", SOON, || {
            fixture.used_bytes() == 4 * CONTEXT + SHARED && second.used() == 2 * CONTEXT + SHARED
        });
        first.killed();
        eventually("it is the last one's", SOON, || {
            fixture.used_bytes() == 3 * CONTEXT + SHARED && second.used() == CONTEXT + SHARED
        });
        second.does("let");
        assert_eq!(second.used(), CONTEXT + SHARED, "{kind}: it was opened twice");
        second.does("let");
        eventually("no process holds it", SOON, || {
            fixture.used_bytes() == 3 * CONTEXT && second.used() == CONTEXT
        });
        end(&fixture, vec![second, tight, beside]);
    }
    ends_clean(&fixture, 5 * CONTEXT + SHARED);
}
