//! Streams of events: first the present ones, then new ones, until the reader, the manager or the deadline ends it.

use std::pin::Pin;

use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::serve::stopped;

/// Messages that wait for a reader besides those in its connection.
const WAITING: usize = 16;

pub(super) type Answers<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// `first`, then what `told` brings, each as `message` makes it (nothing: it is not for this reader). A reader that is too
/// slow for `told` gets ABORTED; one that does not read at all holds what is written here, and no more.
pub(super) fn follow<T, M>(
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
