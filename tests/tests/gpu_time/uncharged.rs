//! No free work (I16): ways of keeping the GPU busy that are hard to charge get no more than the cap. By the simulator's
//! exact record, in virtual time. `--nocapture` prints the shares.

use vcuda_benches::lab::Lab;
use vcuda_tests::virtual_time::{lab, shares};
use vcuda_tests::{Door, app};

/// Small contexts, as one program makes forty.
const MACHINE: &str = "context_bytes = \"4MiB\"\n";
/// Number of windows of two seconds.
const WINDOWS: usize = 5;
/// Allowed excess over the cap in a window, and in total (points).
const BEYOND: f64 = 1.0;
const BEYOND_TOGETHER: f64 = 0.3;
/// Share of a kernel of 50 ms in a window (points).
const LONG_KERNEL: f64 = 2.5;

/// Checks that in no window the program gets more than its cap, and in total at least `least` of it.
fn is_held(machine: &str, how: &str, cap_percent: u32, least: f64) {
    is_held_but_for(0.0, machine, how, cap_percent, least);
}

/// As [`is_held`], with an additional excess in a window (points).
fn is_held_but_for(kernel: f64, machine: &str, how: &str, cap_percent: u32, least: f64) {
    let program = app("uncharged", Door::Dlsym);
    let cores = cap_percent.to_string();
    let lab = lab(machine, &program, &[(&["--cores", &cores], &[how])]);
    let windows: Vec<f64> = (0..WINDOWS).map(|_| shares(&lab)[0]).collect();
    let cap = f64::from(cap_percent);
    let mean = windows.iter().sum::<f64>() / f64::from(u32::try_from(WINDOWS).unwrap());
    println!("{how}: {mean:.1} % under a cap of {cap_percent}, by window {windows:.1?}");
    assert!(
        windows.iter().all(|share| *share <= cap + BEYOND + kernel) && mean <= cap + BEYOND_TOGETHER,
        "{how}: {windows:.1?} % under a cap of {cap_percent}"
    );
    assert!(mean >= cap * least, "{how}: {windows:.1?} % under a cap of {cap_percent}");
}

#[test]
fn kernels_that_grow_are_measured_again() {
    is_held(MACHINE, "grow-sync", 30, 0.95);
    is_held(MACHINE, "grow-poll", 30, 0.95);
}

#[test]
fn more_streams_than_usual_are_measured_all() {
    is_held(MACHINE, "streams", 30, 0.95);
    is_held(MACHINE, "streams-ahead", 30, 0.95);
}

/// As beyond 4,096 busy streams: no timing event measures a launch, and its call returns when the kernel is done, as the program
/// checks.
#[test]
fn more_streams_than_can_be_measured_are_charged() {
    is_held(MACHINE, "streams-crowded", 30, 0.9);
}

/// Its first launch finds no address space for the shim's table of streams: each launch is waited for, and the program goes on.
#[test]
fn a_program_without_address_space_is_charged() {
    is_held(MACHINE, "confined", 30, 0.9);
}

#[test]
fn more_contexts_than_usual_are_measured_all() {
    is_held(MACHINE, "contexts", 30, 0.95);
}

/// After the maximum wait, launches go into debt one at a time, however many threads wait.
#[test]
fn threads_do_not_multiply_the_bound_on_a_wait() {
    is_held_but_for(LONG_KERNEL, MACHINE, "threads-long", 10, 0.8);
}

/// A correct program: pauses between its launches are not charged, though it never waits for the stream.
#[test]
fn pauses_between_launches_are_not_charged() {
    is_held(MACHINE, "pauses", 25, 0.97);
    // Each of its launches has an event behind it, which is not the program's work.
    let machine = format!("{MACHINE}[driver]\nevent_record_ns = 2500\nevent_pair_ns = 2500\n");
    is_held(&machine, "pauses", 25, 0.97);
}

/// Correct programs that are bound by their launches keep their pace under a share that they do not use up, with few timing events:
/// one for eight of their launches. After so many the driver refuses more, and each launch would be waited for.
#[test]
fn short_kernels_get_few_timing_events() {
    const EVENTS: u32 = 25_000;
    let machine = format!("{MACHINE}[faults.functions.cuEventRecord]\nnth = {EVENTS}\ncode = 400\n");
    let program = app("uncharged", Door::Dlsym);
    for how in ["short", "short-paused"] {
        let share_with = |quota: &[&str]| {
            let lab = lab(&machine, &program, &[(quota, &[how])]);
            shares(&lab)[0]
        };
        let (free, limited) = (share_with(&["--memory", "4GiB"]), share_with(&["--cores", "90"]));
        // A kernel takes 2 us of each 12: some 200,000 launches in three seconds.
        assert!((8.0..20.0).contains(&free), "{how}: {free:.2} %");
        assert!(limited >= free * 0.98, "{how}: {limited:.2} % with a share, {free:.2} % without");
    }
}

/// A kernel that ends in a pause, before anything asks for it, is charged.
#[test]
fn kernels_hidden_before_pauses_are_charged() {
    is_held(MACHINE, "hidden", 30, 0.85);
}

/// Tokens that pay for pauses pay for no kernel that is hidden in one.
#[test]
fn kernels_behind_pauses_that_were_paid_for_are_charged() {
    is_held(MACHINE, "savings", 30, 0.85);
    is_held(MACHINE, "savings-thread", 30, 0.85);
}

/// While a stream is captured, launches in other streams are measured and throttled as usual, also on the capturing thread.
#[test]
fn work_beside_a_capture_is_charged() {
    is_held(MACHINE, "captured", 30, 0.95);
    is_held(MACHINE, "captured-grow", 30, 0.95);
}

/// Waits for the host leave room for kernels' timing events.
#[test]
fn waits_for_the_host_hide_no_kernel() {
    is_held(MACHINE, "gated", 30, 0.8);
}

/// A launch is charged where it runs, whatever context is current.
#[test]
fn streams_of_other_contexts_are_charged() {
    for how in ["other", "other-kernel", "green"] {
        is_held(MACHINE, how, 10, 0.95);
    }
}

/// As with `CUDA_LAUNCH_BLOCKING=1`.
#[test]
fn launch_calls_that_wait_for_their_kernels_are_charged() {
    let machine = format!("{MACHINE}[driver]\nlaunch_blocks = true\n");
    is_held(&machine, "plain", 30, 0.95);
}

/// Work queued before a cap is set runs to its end, and is charged.
#[test]
fn a_cap_that_is_set_counts_what_is_queued() {
    const CAP: f64 = 20.0;
    let program = app("uncharged", Door::Dlsym);
    let lab = lab(MACHINE, &program, &[(&["--memory", "4GiB"], &["ahead"])]);
    assert!(shares(&lab)[0] > 99.0);
    lab.set(0, &["--cores", "20"]).unwrap();
    let windows: Vec<f64> = (0..5).map(|_| shares(&lab)[0]).collect();
    let mean = windows.iter().sum::<f64>() / 5.0;
    println!("a cap on a full queue: {mean:.1} % under a cap of {CAP}, by window {windows:.1?}");
    assert!((CAP * 0.9..=CAP + 1.0).contains(&mean), "{windows:.1?} %");
}

/// If the driver refuses to record an event, launches are serialised and waited for.
#[test]
fn what_no_event_measures_is_charged() {
    let machine = format!("{MACHINE}[faults.functions.cuEventRecord]\nevery = 1\ncode = 400\n");
    for how in ["plain", "ahead", "grow-sync"] {
        is_held(&machine, how, 30, 0.9);
    }
}

const MS: u64 = 1_000_000;

/// Runs processes of one tenant in turn: each launches four kernels of `kernel_ms`, is stopped when one of them runs, and
/// killed when they are done. With `alone` each is the tenant's only process, and the tenant ends with it; otherwise an
/// idle process lives on. In a window of ten seconds they get at most the cap and four kernels.
fn are_held_though_stopped_and_killed(cap_percent: u32, kernel_ms: u32, alone: bool) {
    let program = app("uncharged", Door::Dlsym);
    let (cores, kernel_ns) = (cap_percent.to_string(), (u64::from(kernel_ms) * MS).to_string());
    let burst = ["burst", &kernel_ns];
    let first: &[&str] = if alone { &burst } else { &["idle"] };
    let mut lab = lab(MACHINE, &program, &[(&["--cores", &cores], first)]);
    if alone {
        lab.kill(0, 0).unwrap();
    }
    let (began_ns, before_ns) = (lab.now_ns(), served_ns(&lab));
    while lab.now_ns() < began_ns + 10_000 * MS {
        let process = lab.join(0, &["--cores", &cores], &burst).unwrap();
        while !is_served(&lab) {}
        lab.stop(0, process).unwrap();
        while is_served(&lab) {}
        lab.kill(0, process).unwrap();
    }
    let (elapsed_ns, got_ns) = (lab.now_ns() - began_ns, served_ns(&lab) - before_ns);
    println!(
        "four kernels of {kernel_ms} ms, stopped and killed, alone {alone}: {:.1} % under a cap of {cap_percent}",
        100.0 * got_ns as f64 / elapsed_ns as f64
    );
    let most_ns = elapsed_ns * u64::from(cap_percent) / 100 + 4 * u64::from(kernel_ms) * MS;
    assert!(got_ns <= most_ns, "{got_ns} of {elapsed_ns} ns under a cap of {cap_percent}, alone: {alone}");
}

/// Whether anything runs in the next moment.
fn is_served(lab: &Lab) -> bool {
    let before_ns = served_ns(lab);
    lab.run_for(25 * MS).unwrap();
    served_ns(lab) > before_ns
}

fn served_ns(lab: &Lab) -> u64 {
    lab.service_ns().unwrap().iter().flatten().sum()
}

#[test]
fn processes_that_are_stopped_and_killed_are_charged() {
    are_held_though_stopped_and_killed(10, 50, false);
    are_held_though_stopped_and_killed(50, 500, false);
}

#[test]
fn a_name_keeps_the_debt_of_its_last_process() {
    are_held_though_stopped_and_killed(10, 50, true);
}

/// Work that runs while a process is stopped is charged once: provisionally by the arbiter, then by the process.
#[test]
fn a_process_that_was_stopped_gets_its_share_afterwards() {
    let program = app("uncharged", Door::Dlsym);
    let each = ["each", "500000000"];
    let lab = lab(MACHINE, &program, &[(&["--cores", "50"], &each)]);
    while !is_served(&lab) {}
    lab.stop(0, 0).unwrap();
    assert!(is_served(&lab), "it has work in flight");
    lab.run_for(3_000 * MS).unwrap();
    lab.resume(0, 0).unwrap();
    let windows: Vec<f64> = (0..5).map(|_| shares(&lab)[0]).collect();
    let mean = windows.iter().sum::<f64>() / 5.0;
    assert!((48.0..=52.0).contains(&mean), "{windows:.1?} %");
}
