//! Room that ended pods still hold: a container that fits nowhere asks for it to be given back at once.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// The longest wait for an answer: a container's start has 10 s for everything.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Asks for room.
#[derive(Debug, Clone)]
pub struct Asks(mpsc::Sender<oneshot::Sender<usize>>);

/// Receives the questions.
#[derive(Debug)]
pub struct Asked(mpsc::Receiver<oneshot::Sender<usize>>);

/// Both ends.
#[must_use]
pub fn room() -> (Asks, Asked) {
    let (asks, asked) = mpsc::channel(64);
    (Asks(asks), Asked(asked))
}

impl Asks {
    /// Waits until devices of ended pods were looked for. Returns whether anything was given back.
    pub async fn make(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        let asked = async {
            self.0.send(answer).await.ok()?;
            answered.await.ok()
        };
        matches!(timeout(ANSWERS_WITHIN, asked).await, Ok(Some(given_back)) if given_back > 0)
    }
}

impl Asked {
    /// The next question, and all that came with it: one look answers them together. None: no asker is left.
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
    async fn one_look_answers_all_who_asked() {
        let (asks, mut asked) = room();
        let (first, second) = (asks.clone(), asks.clone());
        let askers = [
            tokio::spawn(async move { first.make().await }),
            tokio::spawn(async move { second.make().await }),
        ];
        let mut waiting = Vec::new();
        while waiting.len() < 2 {
            waiting.extend(asked.next().await.unwrap());
        }
        for answer in waiting {
            answer.send(1).unwrap();
        }
        for asker in askers {
            assert!(asker.await.unwrap());
        }
    }

    #[tokio::test]
    async fn no_answer_is_no_room() {
        let (asks, asked) = room();
        drop(asked);
        assert!(!asks.make().await);
    }
}
