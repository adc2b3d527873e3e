//! Streams of events: present ones, then new ones, until the client, the manager or the deadline ends them.

use std::pin::Pin;

use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::background::stopped;

/// Messages that wait for a client, besides those in its connection.
const WAITING: usize = 16;

pub(super) type Answers<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// A stream of `first` and then of `told`, converted by `message` (`None` skips an item). A client too slow for `told` gets
/// ABORTED. A client that does not read at all costs only this buffer.
pub(super) fn subscription<T, M>(
    first: impl Iterator<Item = M> + Send + 'static,
    told: Option<broadcast::Receiver<T>>,
    message: impl Fn(T) -> Option<M> + Send + 'static,
    stop: watch::Receiver<bool>,
) -> Answers<M>
where
    T: Clone + Send + 'static,
    M: Send + 'static,
{
    let (sender, answers) = mpsc::channel(WAITING);
    let feeding = feed(sender.clone(), first, told, message);
    tokio::spawn(async move {
        tokio::select! {
            () = feeding => {}
            () = sender.closed() => {}
            () = stopped(stop) => {}
        }
    });
    Box::pin(ReceiverStream::new(answers))
}

async fn feed<T, M>(
    sender: mpsc::Sender<Result<M, Status>>,
    first: impl Iterator<Item = M> + Send,
    told: Option<broadcast::Receiver<T>>,
    message: impl Fn(T) -> Option<M> + Send,
) where
    T: Clone + Send,
    M: Send,
{
    for one in first {
        if sender.send(Ok(one)).await.is_err() {
            return;
        }
    }
    let Some(mut told) = told else { return };
    loop {
        let next = match told.recv().await {
            Ok(one) => message(one).map(Ok),
            Err(broadcast::error::RecvError::Closed) => return,
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Err(Status::aborted(format!(
                "{missed} messages were missed: read faster, and begin again"
            )))),
        };
        let Some(next) = next else { continue };
        let is_last = next.is_err();
        if sender.send(next).await.is_err() || is_last {
            return;
        }
    }
}
