//! Pods whose questions were answered, and whose nodes are not known yet. The scheduler chooses one of the nodes that it was
//! offered, and asks about the next pod before the API server shows the choice. So such a pod counts on each of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::admit::Share;

/// Namespace and name of a pod.
pub(super) type PodKey = (String, String);

/// How long an offer counts at most: a pod that is not bound by then went nowhere, or waits for something else.
const OPEN: Duration = Duration::from_secs(5);

/// Nodes that a pod was offered.
#[derive(Debug)]
struct Offer {
    until: Instant,
    nodes: HashSet<String>,
    shares: Vec<Share>,
}

#[derive(Debug, Default)]
pub(super) struct Offers(HashMap<PodKey, Offer>);

impl Offers {
    /// Notes that a pod with these shares was offered these nodes, in place of what it was offered before.
    pub(super) fn note(&mut self, pod: PodKey, nodes: HashSet<String>, shares: Vec<Share>, now: Instant) {
        self.0.retain(|_, offer| offer.until > now);
        if nodes.is_empty() {
            self.0.remove(&pod);
            return;
        }
        let until = now + OPEN;
        self.0.insert(pod, Offer { until, nodes, shares });
    }

    /// Forgets the offer to a pod, whose node is known.
    pub(super) fn close(&mut self, pod: &PodKey) {
        self.0.remove(pod);
    }

    /// Shares of other pods than `pod` that may come to a node.
    pub(super) fn others<'a>(
        &'a self,
        pod: &'a PodKey,
        node: &'a str,
        now: Instant,
    ) -> impl Iterator<Item = Share> + 'a {
        let open = self
            .0
            .iter()
            .filter(move |(key, offer)| *key != pod && offer.until > now && offer.nodes.contains(node));
        open.flat_map(|(_, offer)| offer.shares.iter().copied())
    }
}
