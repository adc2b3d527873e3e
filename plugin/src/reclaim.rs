//! Requests to release the grants of ended pods at once, for a container that fits on no GPU until then.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Longest wait for a reply. The whole start of a container may take 10 s.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests to the releaser.
#[derive(Debug, Clone)]
pub(crate) struct ReclaimSender(mpsc::Sender<oneshot::Sender<usize>>);

/// Receives the requests in the releaser.
#[derive(Debug)]
pub(crate) struct ReclaimReceiver(mpsc::Receiver<oneshot::Sender<usize>>);

pub(crate) fn reclaim_channel() -> (ReclaimSender, ReclaimReceiver) {
    let (requests, received) = mpsc::channel(64);
    (ReclaimSender(requests), ReclaimReceiver(received))
}

impl ReclaimSender {
    /// Waits until the releaser has released the grants of ended pods. Returns whether it released any; false if it does not reply
    /// within 5 s.
    pub(crate) async fn reclaim(&self) -> bool {
        let (reply, replied) = oneshot::channel();
        let request = async {
            self.0.send(reply).await.ok()?;
            replied.await.ok()
        };
        matches!(timeout(REPLY_TIMEOUT, request).await, Ok(Some(given_back)) if given_back > 0)
    }
}

impl ReclaimReceiver {
    /// Waits for a request. Returns its reply channel and those of all requests that are queued: one pass answers them together.
    /// Returns `None` if no sender is left.
    pub(crate) async fn next(&mut self) -> Option<Vec<oneshot::Sender<usize>>> {
        let mut all = vec![self.0.recv().await?];
        while let Ok(more) = self.0.try_recv() {
            all.push(more);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_pass_answers_all_waiting_requests() {
        let (sender, mut receiver) = reclaim_channel();
        let (first, second) = (sender.clone(), sender.clone());
        let callers = [
            tokio::spawn(async move { first.reclaim().await }),
            tokio::spawn(async move { second.reclaim().await }),
        ];
        let mut waiting = Vec::new();
        while waiting.len() < 2 {
            waiting.extend(receiver.next().await.unwrap());
        }
        for answer in waiting {
            answer.send(1).unwrap();
        }
        for caller in callers {
            assert!(caller.await.unwrap());
        }
    }

    #[tokio::test]
    async fn without_a_reply_nothing_was_given_back() {
        let (sender, receiver) = reclaim_channel();
        drop(receiver);
        assert!(!sender.reclaim().await);
    }
}
