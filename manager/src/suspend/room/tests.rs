//! A storm in virtual time: many more tenants than a GPU holds, each served by the decisions of [`super`]. The model adds what
//! they decide about: programs that ask for their memory and copies that take time.

use vcuda_quota::Priority;
use vcuda_region::GpuUuid;
use vcuda_region::room::ASK_AGAIN_NS;

use super::demands::{Demands, Purpose};
use super::victim::{self, Resident, Wanting};

const S: u64 = 1_000_000_000;
const TENANTS: usize = 50;
/// Number of tenants that fit on the GPU together.
const PLACES: usize = 6;
const RESIDENCE_NS: u64 = 3 * S;
/// Time of a suspension, and of a resume.
const COPY_NS: u64 = S / 4;
const DURATION_NS: u64 = 300 * S;

/// Where a tenant's memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    /// It is copied to the host, until this time (ns).
    Leaving(u64),
    /// It is copied to the GPU, until this time (ns).
    Coming(u64),
    Gpu,
}

#[derive(Debug)]
struct Tenant {
    id: String,
    weight: u32,
    priority: Priority,
    place: Place,
    /// Whether its program makes no calls at times.
    has_pauses: bool,
    is_calling: bool,
    /// Time at which its program begins or ends to make calls (ns).
    turns_ns: u64,
    used_ns: u64,
    came_ns: u64,
    /// Time since which its program waits for its memory (ns).
    waits_since_ns: Option<u64>,
    waits_ns: Vec<u64>,
}

#[derive(Debug)]
struct Storm {
    tenants: Vec<Tenant>,
    demands: Demands,
    /// State of a xorshift generator.
    random: u64,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let priorities = [Priority::Low, Priority::Normal, Priority::High];
        let tenant = |number: usize| Tenant {
            id: format!("tenant-{number:02}"),
            weight: [1, 100, 100, 1000][number % 4],
            priority: priorities[number % 3],
            place: Place::Host,
            has_pauses: !number.is_multiple_of(2),
            is_calling: number.is_multiple_of(2),
            turns_ns: 0,
            used_ns: 0,
            came_ns: 0,
            waits_since_ns: None,
            waits_ns: Vec::new(),
        };
        Self { tenants: (0..TENANTS).map(tenant).collect(), demands: Demands::default(), random: seed }
    }

    fn random_below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }

    fn step(&mut self, now_ns: u64) {
        for number in 0..self.tenants.len() {
            let next_ns = now_ns + self.random_below(10 * S);
            self.tenants[number].run(now_ns, next_ns);
        }
        for tenant in self.tenants.iter().filter(|one| one.waits_since_ns.is_some()) {
            if tenant.place == Place::Host {
                let gpu = GpuUuid::from_bytes([1; 16]);
                self.demands.note(&tenant.id, Purpose::Resume, vec![gpu], true, now_ns);
            }
        }
        let is_back = |id: &str| self.tenants.iter().any(|one| one.id == id && one.place == Place::Gpu);
        self.demands.forget_resumed(is_back);
        self.demands.forget_old(now_ns);
        for (id, _) in self.demands.first(now_ns) {
            self.serve(&id, now_ns);
        }
    }

    /// Resumes a tenant if there is a place, or begins to suspend another one.
    fn serve(&mut self, id: &str, now_ns: u64) {
        let is_leaving = |one: &Tenant| matches!(one.place, Place::Leaving(_));
        if self.tenants.iter().any(is_leaving) {
            return;
        }
        let on_gpu = self.tenants.iter().filter(|one| one.place != Place::Host);
        if on_gpu.count() < PLACES {
            self.find(id).place = Place::Coming(now_ns + COPY_NS);
            return;
        }
        let wanting = Wanting { is_suspendable: true, weight: self.find(id).weight };
        let residents = self.tenants.iter().filter(|one| one.place == Place::Gpu);
        let residents: Vec<Resident<'_>> = residents
            .map(|one| Resident {
                id: &one.id,
                priority: one.priority,
                weight: one.weight,
                idle_ns: now_ns - one.used_ns,
                resident_ns: now_ns - one.came_ns,
            })
            .collect();
        let victim = victim::choose(wanting, RESIDENCE_NS, &residents).map(str::to_owned);
        if let Some(victim) = victim {
            self.find(&victim).place = Place::Leaving(now_ns + COPY_NS);
        }
    }

    fn find(&mut self, id: &str) -> &mut Tenant {
        self.tenants.iter_mut().find(|one| one.id == id).unwrap()
    }
}

impl Tenant {
    /// Ends its copy if it is time, and has its program call, pause or wait. `next_ns` is a random time at which it turns.
    fn run(&mut self, now_ns: u64, next_ns: u64) {
        match self.place {
            Place::Leaving(end_ns) if end_ns <= now_ns => self.place = Place::Host,
            Place::Coming(end_ns) if end_ns <= now_ns => {
                self.place = Place::Gpu;
                self.came_ns = now_ns;
            }
            _ => {}
        }
        // A program that waits for its memory neither calls nor pauses.
        if self.has_pauses && self.turns_ns <= now_ns && self.waits_since_ns.is_none() {
            self.is_calling = !self.is_calling;
            self.turns_ns = next_ns;
        }
        if !self.is_calling {
            return;
        }
        if self.place == Place::Gpu {
            self.used_ns = now_ns;
            let waited = self.waits_since_ns.take();
            self.waits_ns.extend(waited.map(|since_ns| now_ns - since_ns));
        } else {
            self.waits_since_ns.get_or_insert(now_ns);
        }
    }
}

/// The longest wait until a tenant is back: in each round every place is given to the next one. A round takes the longest stay
/// of a busy tenant, twice the residence, and for each place the copies, one after the other.
fn longest_wait_ns() -> u64 {
    let rounds = TENANTS.div_ceil(PLACES) as u64;
    let change_ns = 2 * COPY_NS + 2 * ASK_AGAIN_NS;
    rounds * (2 * RESIDENCE_NS + PLACES as u64 * change_ns)
}

#[test]
fn fifty_tenants_on_a_gpu_that_holds_six_are_all_served_in_time() {
    for seed in [1, 2] {
        let mut storm = Storm::new(seed);
        let mut now_ns = S;
        while now_ns < DURATION_NS {
            storm.step(now_ns);
            let on_gpu = storm.tenants.iter().filter(|one| one.place != Place::Host);
            assert!(on_gpu.count() <= PLACES);
            now_ns += ASK_AGAIN_NS;
        }
        for one in &mut storm.tenants {
            let since_ns = one.waits_since_ns.unwrap_or(now_ns);
            one.waits_ns.push(now_ns - since_ns);
        }
        let worst = |one: &Tenant| one.waits_ns.iter().max().copied().unwrap();
        let slowest = storm.tenants.iter().max_by_key(|one| worst(one)).unwrap();
        let served: Vec<usize> = storm.tenants.iter().map(|one| one.waits_ns.len() - 1).collect();
        println!(
            "seed {seed}: the longest wait was {} s, of {}; at most {} s follow from the residence; each was served {} to {} times",
            worst(slowest) / S,
            slowest.id,
            longest_wait_ns() / S,
            served.iter().min().unwrap(),
            served.iter().max().unwrap(),
        );
        assert!(worst(slowest) <= longest_wait_ns(), "{slowest:?}");
        assert!(served.iter().all(|count| *count > 1), "{served:?}");
    }
}
