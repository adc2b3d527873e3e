//! The limiter's arithmetic against a model of one GPU, in virtual time: contexts in round-robin slices of 2 ms, one stream
//! per tenant, a host that launches as fast as it may, events that are seen late. The real bucket, busy map, throttle and
//! controller decide. Evidence on a model, not on hardware; what it shows is that the arithmetic adds up.
#![allow(
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unwrap_used,
    reason = "a model: it stops at the first thing that is not as it should be"
)]
mod gpu;
mod tenant;

use gpu::Gpu;
use tenant::Tenant;
use vcuda_limiter::controller::{self, Busy};

const STEP_NS: u64 = 10_000;

/// Durations of a tenant's kernels, one after another.
type Kernels = Box<dyn FnMut() -> u64>;

fn all(duration_ns: u64) -> Kernels {
    Box::new(move || duration_ns)
}

/// 8 us to 5 ms, short ones more often.
fn mix(mut seed: u64) -> Kernels {
    Box::new(move || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let x = (seed >> 40) as f64 / (1 << 24) as f64;
        (8_000.0 * 625.0_f64.powf(x * x)).round().clamp(8e3, 5e6) as u64
    })
}

/// Runs the tenants for `seconds` after a second of warm-up; the share of each, in percent.
fn shares(caps: &[u32], kernels: Vec<Kernels>, seconds: u64) -> Vec<f64> {
    let begin_ns = 1_000_000_000;
    let mut tenants: Vec<Tenant> = caps
        .iter()
        .zip(kernels)
        .map(|(cap, kernels)| Tenant::new(*cap, kernels, begin_ns))
        .collect();
    let mut gpu = Gpu::new();
    let (warm_ns, end_ns) = (begin_ns + 1_000_000_000, begin_ns + (seconds + 1) * 1_000_000_000);
    let mut before = Vec::new();
    let mut now_ns = begin_ns;
    while now_ns < end_ns {
        if now_ns == warm_ns {
            before = tenants.iter().map(|tenant| tenant.service_ns).collect();
        }
        gpu.run(&mut tenants, now_ns);
        now_ns += STEP_NS;
        for tenant in &mut tenants {
            tenant.settle(now_ns);
            tenant.launch(now_ns);
        }
        if now_ns % controller::CONTENDED_NS == 0 {
            arbitrate(&mut tenants, now_ns);
        }
    }
    let share = |(tenant, before): (&Tenant, &u64)| {
        (tenant.service_ns - before) as f64 / (seconds * 10_000_000) as f64
    };
    tenants.iter().zip(&before).map(share).collect()
}

fn arbitrate(tenants: &mut [Tenant], now_ns: u64) {
    let look = |tenant: &Tenant| Busy {
        map: tenant.busy_words(now_ns),
        ..Busy::default()
    };
    let busy: Vec<Busy> = tenants.iter().map(look).collect();
    let demands = busy.iter().filter(|one| one.map.iter().any(|bins| *bins != 0));
    let compete = demands.count() > 1;
    for (tenant, overlap) in tenants.iter_mut().zip(controller::overlaps(&busy)) {
        tenant.scale.follow(overlap);
        tenant.pace.scale_permille = tenant.scale.permille();
        tenant.pace.contended = compete;
    }
}

#[track_caller]
fn near(got: &[f64], caps: &[u32], points: f64) {
    for (got, cap) in got.iter().zip(caps) {
        let cap = f64::from(*cap) / 10.0;
        assert!((got - cap).abs() <= points, "{got:.2} % instead of {cap} %");
    }
}

#[test]
fn one_tenant_alone_gets_its_cap() {
    for cap in [100, 500, 900] {
        for kernels in [all(10_000), all(20_000_000), mix(1)] {
            near(&shares(&[cap], vec![kernels], 2), &[cap], 1.0);
        }
    }
}

#[test]
fn two_that_leave_some_idle_get_their_caps() {
    for duration in [10_000, 1_000_000, 20_000_000] {
        near(
            &shares(&[300, 600], vec![all(duration), all(duration)], 3),
            &[300, 600],
            1.5,
        );
    }
    near(&shares(&[300, 600], vec![mix(1), mix(2)], 2), &[300, 600], 1.5);
}

#[test]
fn two_that_want_all_of_it_share_it() {
    for duration in [10_000, 1_000_000, 20_000_000] {
        near(
            &shares(&[300, 700], vec![all(duration), all(duration)], 3),
            &[300, 700],
            2.0,
        );
    }
    near(&shares(&[300, 700], vec![mix(1), mix(2)], 2), &[300, 700], 2.0);
}

#[test]
fn long_and_short_kernels_side_by_side() {
    near(
        &shares(&[300, 600], vec![all(10_000), all(20_000_000)], 3),
        &[300, 600],
        1.5,
    );
    near(
        &shares(&[300, 600], vec![all(20_000_000), all(10_000)], 3),
        &[300, 600],
        1.5,
    );
}

#[test]
fn four_share_as_two_do() {
    let caps = [100, 200, 300, 350];
    near(&shares(&caps, (1..5).map(mix).collect(), 2), &caps, 2.5);
    near(
        &shares(&caps, (1..5).map(|_| all(1_000_000)).collect(), 3),
        &caps,
        1.5,
    );
}
