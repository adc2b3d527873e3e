//! Whether a pod's containers fit on a node's GPUs, each share on one of them, and how well. Arithmetic alone.

use serde::Deserialize;
use serde_json::{Map, Value};
use vcuda_quota::MemorySize;
use vcuda_quota::pods::node_gpus::{FreeGpu, NodeGpus};

use crate::admit::pod;
use crate::admit::{Rules, Share};

/// The best score that the scheduler takes (`MaxExtenderPriority`).
const BEST: i64 = 10;

/// Which of the nodes that fit is the better one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Score {
    /// One whose GPUs are full afterwards: others stay free for large pods.
    #[default]
    Binpack,
    /// One whose GPUs have most left.
    Spread,
    /// One whose GPUs are linked or near each other, for containers with several; else as binpack.
    Topology,
}

/// Shares that a pod's containers ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Containers that run at the same time, the largest share first.
    together: Vec<Share>,
    /// Init containers: each runs alone, before the others.
    alone: Vec<Share>,
}

impl Asked {
    /// Those of a pod. A request that cannot be read asks for nothing here: the webhook or the node refuses it.
    pub(crate) fn of(pod: &Value, rules: &Rules) -> Self {
        let mut asked = Self::default();
        for container in containers(pod, rules) {
            match container.is_alone {
                true => asked.alone.push(container.share),
                false => asked.together.push(container.share),
            }
        }
        largest_first(&mut asked.together);
        asked
    }

    /// Shares of containers that run at the same time.
    pub(crate) fn together(&self) -> &[Share] {
        &self.together
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) name: String,
    /// Whether it is an init container that runs before the others.
    pub(super) is_alone: bool,
    pub(super) share: Share,
}

/// Containers of a pod that have shares.
pub(super) fn containers(pod: &Value, rules: &Rules) -> Vec<Container> {
    let empty = Map::new();
    let mut found = Vec::new();
    for list in pod::LISTS {
        let containers = pod.get("spec").and_then(|spec| spec.get(list)).and_then(Value::as_array);
        for container in containers.into_iter().flatten() {
            let of_container = container.as_object().unwrap_or(&empty);
            let Ok(Some(share)) = Share::asked(of_container, rules) else {
                continue;
            };
            let is_sidecar = container.get("restartPolicy").and_then(Value::as_str) == Some("Always");
            found.push(Container {
                name: pod::name(of_container),
                is_alone: list == "initContainers" && !is_sidecar,
                share,
            });
        }
    }
    found
}

fn largest_first(shares: &mut [Share]) {
    shares.sort_by_key(|share| std::cmp::Reverse((share.each.chunks, share.each.percents)));
}

/// What `gpus` have left beside shares that the node was sent and has not granted yet. One that has no room waits on the node
/// and takes nothing.
pub(super) fn left_beside(mut sent: Vec<Share>, mut gpus: NodeGpus) -> NodeGpus {
    largest_first(&mut sent);
    for share in &sent {
        place(share, &mut gpus);
    }
    gpus
}

/// The places in `gpus` that each share would get, and what the GPUs have left then. `None`: one does not fit.
fn placed(shares: &[Share], gpus: &NodeGpus) -> Option<(Vec<Vec<usize>>, NodeGpus)> {
    let mut left = gpus.clone();
    let places = shares.iter().map(|share| place(share, &mut left));
    Some((places.collect::<Option<_>>()?, left))
}

/// Takes a share off `gpus`. Returns its places; `None` if it does not fit, and then nothing is taken.
fn place(share: &Share, gpus: &mut NodeGpus) -> Option<Vec<usize>> {
    let with_room = |(place, gpu): (usize, &FreeGpu)| {
        let has_room = gpu.shares > 0 && gpu.cores >= share.each.percents;
        let chunks = free_chunks(share, gpu).filter(|_| has_room)?;
        Some((chunks, gpu.cores, place))
    };
    let mut found: Vec<(u32, u32, usize)> = gpus.gpus.iter().enumerate().filter_map(with_room).collect();
    // The fullest first, as the manager's binpack does.
    found.sort_unstable();
    found.truncate(usize::try_from(share.gpus).unwrap_or(usize::MAX));
    if u32::try_from(found.len()) != Ok(share.gpus) {
        return None;
    }
    let places: Vec<usize> = found.into_iter().map(|(_, _, place)| place).collect();
    for place in &places {
        if let Some(gpu) = gpus.gpus.get_mut(*place) {
            gpu.shares -= 1;
            match gpu.turns.as_mut().filter(|_| share.is_suspendable) {
                Some(turns) => turns.mem -= share.each.chunks,
                None => gpu.mem -= share.each.chunks,
            }
            gpu.cores -= share.each.percents;
        }
    }
    Some(places)
}

/// Free chunks of the memory that a share is of; `None` if they are too few.
fn free_chunks(share: &Share, gpu: &FreeGpu) -> Option<u32> {
    let chunks = match share.is_suspendable {
        true => gpu.turns.filter(|turns| turns.most >= share.each.chunks).map(|turns| turns.mem),
        false => Some(gpu.mem),
    };
    chunks.filter(|chunks| *chunks >= share.each.chunks)
}

/// Whether all containers fit.
///
/// # Errors
/// The reason for the pod's events. It names no node's amounts, so that equal reasons of many nodes are one line there.
/// It has no percent sign, which kube-scheduler takes for the beginning of a format.
pub(crate) fn fits(asked: &Asked, gpus: &NodeGpus, rules: &Rules) -> Result<(), String> {
    let first_alone = asked.alone.iter().find(|share| placed(std::slice::from_ref(*share), gpus).is_none());
    let size = |share: &Share| {
        let memory = MemorySize(u64::from(share.each.chunks).saturating_mul(rules.chunk_bytes));
        format!("{memory} and {} percent free together", share.each.percents)
    };
    if let Some(share) = first_alone
        .or_else(|| asked.together.iter().find(|share| placed(std::slice::from_ref(*share), gpus).is_none()))
    {
        return Err(match share.gpus {
            1 => format!("vcuda: no GPU has {}", size(share)),
            gpus => format!("vcuda: not {gpus} GPUs have {} each", size(share)),
        });
    }
    match placed(&asked.together, gpus) {
        Some(_) => Ok(()),
        None => Err("vcuda: each container of the pod fits on the GPUs, and all of them do not".to_owned()),
    }
}

pub(crate) fn score(asked: &Asked, gpus: &NodeGpus, by: Score) -> i64 {
    let Some((places, left)) = placed(&asked.together, gpus) else {
        return 0;
    };
    let used: Vec<usize> = places.iter().flatten().copied().collect();
    if used.is_empty() {
        return 0;
    }
    let fullness = |place: &usize| left.gpus.get(*place).map_or(0, full_permille);
    let full: i64 = used.iter().map(fullness).sum::<i64>() / i64::try_from(used.len()).unwrap_or(1);
    let packed = (full * BEST + 500) / 1000;
    match by {
        Score::Binpack => packed,
        Score::Spread => BEST - packed,
        Score::Topology if places.iter().all(|of_one| of_one.len() < 2) => packed,
        Score::Topology => places.iter().map(|of_one| nearness(of_one, gpus)).min().unwrap_or(0),
    }
}

/// Fullness of a GPU (thousandths): of memory or of time, whichever is less free.
fn full_permille(gpu: &FreeGpu) -> i64 {
    let used = |free: u32, of: u32| 1000 - i64::from(free.min(of)) * 1000 / i64::from(of.max(1));
    used(gpu.mem, gpu.of).max(used(gpu.cores, 100))
}

/// Nearness of a container's GPUs: 10 if all are linked, 5 if they are near the same NUMA node.
fn nearness(places: &[usize], gpus: &NodeGpus) -> i64 {
    let chosen: Vec<(usize, &FreeGpu)> =
        places.iter().filter_map(|place| Some((*place, gpus.gpus.get(*place)?))).collect();
    let is_linked = |(_, gpu): &(usize, &FreeGpu), other: usize| {
        u32::try_from(other).is_ok_and(|other| gpu.links.contains(&other))
    };
    let all_linked =
        chosen.iter().all(|gpu| chosen.iter().all(|(other, _)| gpu.0 == *other || is_linked(gpu, *other)));
    let first = chosen.first().and_then(|(_, gpu)| gpu.numa);
    let one_node = first.is_some() && chosen.iter().all(|(_, gpu)| gpu.numa == first);
    match (all_linked, one_node) {
        (true, _) => BEST,
        (false, true) => BEST / 2,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vcuda_quota::pods::node_gpus::FreeTurns;

    use super::*;

    fn gpu(mem: u32, cores: u32) -> FreeGpu {
        FreeGpu { mem, of: 320, cores, shares: 16, ..FreeGpu::default() }
    }

    fn node(gpus: &[FreeGpu]) -> NodeGpus {
        NodeGpus { gpus: gpus.to_vec(), held: Vec::new() }
    }

    fn asked(containers: &[(u32, u32, u32)], init: &[(u32, u32, u32)]) -> Asked {
        let list = |all: &[(u32, u32, u32)]| -> Vec<Value> {
            let container = |(gpus, chunks, percents): &(u32, u32, u32)| json!({"resources": {"limits": {"vcuda.io/gpu": gpus, "vcuda.io/memory": chunks, "vcuda.io/cores": percents}}});
            all.iter().map(container).collect()
        };
        let pod = json!({"spec": {"containers": list(containers), "initContainers": list(init)}});
        Asked::of(&pod, &Rules::default())
    }

    fn why(asked: &Asked, gpus: &[FreeGpu]) -> String {
        fits(asked, &node(gpus), &Rules::default()).unwrap_err()
    }

    #[test]
    fn a_node_where_only_the_sum_fits_is_none() {
        let forty = asked(&[(1, 160, 40)], &[]);
        assert_eq!(
            why(&forty, &[gpu(80, 100), gpu(80, 100)]),
            "vcuda: no GPU has 40 GiB and 40 percent free together"
        );
        // Memory on one GPU, time on the other.
        why(&forty, &[gpu(320, 30), gpu(10, 100)]);
        fits(&forty, &node(&[gpu(10, 100), gpu(160, 40)]), &Rules::default()).unwrap();
        let two = asked(&[(2, 320, 80)], &[]);
        assert!(
            why(&two, &[gpu(320, 100), gpu(159, 100)])
                .starts_with("vcuda: not 2 GPUs have 40 GiB and 40 percent")
        );
        fits(&two, &node(&[gpu(160, 40), gpu(160, 40)]), &Rules::default()).unwrap();
        why(&forty, &[]);
        why(&forty, &[FreeGpu { shares: 0, ..gpu(320, 100) }]);
    }

    #[test]
    fn suspendable_containers_have_memory_of_their_own() {
        let turns = |chunks: u32| {
            let limits = json!({"vcuda.io/suspendable-memory": chunks, "vcuda.io/cores": 10});
            let container = json!({"resources": {"limits": limits}});
            Asked::of(&json!({"spec": {"containers": [container]}}), &Rules::default())
        };
        let gpu =
            |mem, of_turns| FreeGpu { turns: Some(FreeTurns { mem: of_turns, most: 160 }), ..gpu(mem, 100) };
        fits(&turns(160), &node(&[gpu(0, 160)]), &Rules::default()).unwrap();
        why(&turns(160), &[gpu(320, 159)]);
        why(&turns(161), &[gpu(320, 320)]);
        why(&asked(&[(1, 1, 10)], &[]), &[gpu(0, 320)]);
        // A node without overcommit has none for them.
        why(&turns(1), &[super::tests::gpu(320, 100)]);
        let left = left_beside(turns(100).together, node(&[gpu(50, 160)]));
        assert_eq!((left.gpus[0].mem, left.gpus[0].turns.unwrap().mem), (50, 60));
    }

    #[test]
    fn containers_are_placed_together_and_init_containers_alone() {
        let pair = asked(&[(1, 160, 40), (1, 200, 40)], &[]);
        assert!(why(&pair, &[gpu(320, 100)]).contains("all of them do not"));
        fits(&pair, &node(&[gpu(160, 100), gpu(200, 100)]), &Rules::default()).unwrap();
        let init = asked(&[(1, 160, 40)], &[(1, 320, 100)]);
        fits(&init, &node(&[gpu(320, 100)]), &Rules::default()).unwrap();
        why(&init, &[gpu(319, 100)]);
    }

    #[test]
    fn what_was_sent_and_not_granted_yet_takes_its_place() {
        let shares = |all: &[(u32, u32, u32)]| asked(all, &[]).together;
        let gpus = [gpu(320, 100), gpu(160, 100)];
        let left = |all: &[(u32, u32, u32)]| -> Vec<(u32, u32)> {
            let left = left_beside(shares(all), node(&gpus));
            left.gpus.iter().map(|gpu| (gpu.mem, gpu.cores)).collect()
        };
        assert_eq!(left(&[]), [(320, 100), (160, 100)]);
        // The fullest with room, as the manager does; the largest first.
        assert_eq!(left(&[(1, 160, 40)]), [(320, 100), (0, 60)]);
        assert_eq!(left(&[(1, 160, 40), (1, 320, 10)]), [(0, 90), (0, 60)]);
        // One for which there is no room takes nothing from the others.
        assert_eq!(left(&[(1, 321, 1), (1, 100, 1)]), [(320, 100), (60, 99)]);
        assert_eq!(left(&[(2, 320, 20)]), [(160, 90), (0, 90)]);
    }

    #[test]
    fn a_pod_without_a_share_fits_everywhere() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, 7, {"resources": {"limits": {"vcuda.io/memory": "x"}}}]}});
        let asked = Asked::of(&pod, &Rules::default());
        fits(&asked, &node(&[]), &Rules::default()).unwrap();
        assert_eq!(score(&asked, &node(&[gpu(320, 100)]), Score::Binpack), 0);
    }

    #[test]
    fn scores_follow_the_policy() {
        let share = asked(&[(1, 32, 10)], &[]);
        let (full, empty) = (node(&[gpu(32, 100)]), node(&[gpu(320, 100)]));
        let scores = |by| [&full, &empty].map(|gpus| score(&share, gpus, by));
        assert_eq!(scores(Score::Binpack), [10, 1]);
        assert_eq!(scores(Score::Spread), [0, 9]);
        assert_eq!(scores(Score::Topology), [10, 1]);
        let two = asked(&[(2, 64, 20)], &[]);
        let with = |numa: [u32; 2], links: [Vec<u32>; 2]| {
            let gpus = numa.into_iter().zip(links).map(|(numa, links)| FreeGpu {
                numa: Some(numa),
                links,
                ..gpu(320, 100)
            });
            node(&gpus.collect::<Vec<_>>())
        };
        assert_eq!(score(&two, &with([0, 1], [vec![1], vec![0]]), Score::Topology), 10);
        assert_eq!(score(&two, &with([1, 1], [vec![], vec![]]), Score::Topology), 5);
        assert_eq!(score(&two, &with([0, 1], [vec![], vec![]]), Score::Topology), 0);
        // Time decides where it is scarcer than memory.
        assert_eq!(score(&share, &node(&[gpu(320, 10)]), Score::Binpack), 10);
    }
}
