//! Makes a case that breaks a promise smaller, as long as it breaks it about as badly.

use crate::schedule_fuzz::case::{Case, Event};
use crate::schedule_fuzz::judge::{Broken, judge};
use crate::schedule_fuzz::play::play;
use crate::schedule_fuzz::script::Step;

/// Shortest duration of a case (virtual ms).
const SHORTEST_MS: u64 = 1_500;

/// Promise that the case breaks, if it does.
fn broken(case: &Case) -> Option<Broken> {
    match play(case) {
        Ok(looks) => judge(case, &looks).broken,
        Err(why) => Some(Broken::Stuck(why)),
    }
}

/// A smaller case that breaks the same promise, and how, found by playing at most so many. Of how many times more than is allowed the tenant got, at least the square root
/// stays: else a case ends as another one that hardly breaks it.
pub(crate) fn shrink(mut case: Case, mut how: Broken, plays: u64) -> (Case, Broken) {
    let least = how.times_allowed().sqrt();
    let mut left = plays;
    loop {
        let mut is_smaller = false;
        let mut position = 0;
        while let Some(smaller) = candidates(&case).into_iter().nth(position) {
            if left == 0 {
                return (case, how);
            }
            left -= 1;
            let is_as_bad = |other: &Broken| other.is_like(&how) && other.times_allowed() >= least;
            match broken(&smaller).filter(is_as_bad) {
                Some(other) => (case, how, is_smaller) = (smaller, other, true),
                None => position += 1,
            }
        }
        if !is_smaller {
            return (case, how);
        }
    }
}

/// Everything that is one piece smaller, the largest pieces first.
fn candidates(case: &Case) -> Vec<Case> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Case)| {
        let mut smaller = case.clone();
        change(&mut smaller);
        if smaller != *case && gang(&smaller) == gang(case) {
            all.push(smaller);
        }
    };
    for script in 0..case.scripts.len() {
        if case.scripts.len() > 1 {
            add(&|case| remove_script(case, script));
        }
    }
    add(&|case| case.lasts_ms = (case.lasts_ms / 2).max(SHORTEST_MS));
    add(&|case| case.events.clear());
    add(&|case| case.neighbour = None);
    add(&|case| case.lies = false);
    add(&|case| case.offset_s = 0);
    for script in 0..case.scripts.len() {
        let threads = case.scripts[script].threads.len();
        if threads > 2 {
            add(&|case| case.scripts[script].threads.truncate(threads / 2));
        }
        for thread in (0..threads).filter(|_| threads > 1) {
            add(&|case| drop(case.scripts[script].threads.remove(thread)));
        }
    }
    for event in 0..case.events.len() {
        add(&|case| {
            case.events.remove(event);
        });
    }
    for script in 0..case.scripts.len() {
        for thread in 0..case.scripts[script].threads.len() {
            for step in 0..case.scripts[script].threads[thread].len() {
                add(&|case| drop(case.scripts[script].threads[thread].remove(step)));
                add(&|case| {
                    if let Some(count) = case.scripts[script].threads[thread][step].numbers.get_mut(3) {
                        *count = (*count / 2).max(1);
                    }
                });
            }
        }
        add(&|case| case.scripts[script].contexts = 1);
        add(&|case| case.scripts[script].streams = 4);
    }
    all
}

/// Kernels of ranks, which all wait if one is left out, and where they run: by contexts and streams of their process.
fn gang(case: &Case) -> Vec<(u64, u64, &Step)> {
    let steps = case
        .scripts
        .iter()
        .flat_map(|script| script.threads.iter().flatten().map(move |step| (script, step)));
    let meetings = steps.filter(|(_, step)| step.what == 'M');
    meetings.map(|(script, step)| (script.contexts, script.streams, step)).collect()
}

fn remove_script(case: &mut Case, script: usize) {
    case.scripts.remove(script);
    case.events.retain_mut(|(_, event)| match event {
        Event::Cap(_) | Event::Claim(_) => true,
        Event::Stop(process) | Event::Resume(process) | Event::Kill(process) | Event::Start(process) => {
            let is_other = *process != script;
            *process -= usize::from(*process > script);
            is_other
        }
    });
}
