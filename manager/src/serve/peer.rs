//! Connections of clients, counted in total and by user, and closed if they send no HTTP/2 preface in time. Each has its caller,
//! as the kernel names it.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;
use vcuda_region::process::peer_groups;

use super::stopped;
use crate::access::{Access, Caller, Right};
use crate::events::{Events, Report, Severity};
use crate::settings::Api;

/// Length of an HTTP/2 client's preface (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
/// Maximum number of connections of all users without any right together: enough to tell each why.
const STRANGERS_MAX: usize = 16;
/// One part in so many of all places is for callers with the right to change all, whatever the others do.
const OPERATORS_PART: usize = 4;

#[derive(Debug)]
struct Connections {
    most: usize,
    most_per_user: usize,
    by_user: Mutex<HashMap<Party, usize>>,
}

/// Users that share a maximum of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Party {
    /// A user that may change all.
    Operator(u32),
    /// A user that may look, or change its own grants.
    User(u32),
    /// All users without any right.
    Strangers,
}

impl Party {
    fn is_operator(self) -> bool {
        matches!(self, Self::Operator(_))
    }
}

impl Connections {
    /// Reserves a place for a connection of this user; `None` at the maximum.
    fn reserve(self: &Arc<Self>, party: Party) -> Option<Place> {
        let mut by_user = self.by_user.lock();
        let total: usize = by_user.values().sum();
        let of_operators = by_user.iter().filter(|(party, _)| party.is_operator());
        let of_others = total - of_operators.map(|(_, count)| count).sum::<usize>();
        let most_of_others = self.most - self.most / OPERATORS_PART;
        let most = match party {
            Party::Operator(_) | Party::User(_) => self.most_per_user,
            Party::Strangers => STRANGERS_MAX,
        };
        let own = by_user.get(&party).copied().unwrap_or(0);
        let is_full = total >= self.most || (!party.is_operator() && of_others >= most_of_others);
        if is_full || own >= most {
            return None;
        }
        by_user.insert(party, own + 1);
        let connections = Arc::clone(self);
        Some(Place { connections, party })
    }
}

/// A connection's place, freed on drop.
#[derive(Debug)]
struct Place {
    connections: Arc<Connections>,
    party: Party,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_user = self.connections.by_user.lock();
        if let Some(own) = by_user.get_mut(&self.party) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                by_user.remove(&self.party);
            }
        }
    }
}

pub(super) fn accept(
    listener: UnixListener,
    api: &Api,
    access: Arc<Access>,
    events: Arc<Events>,
    stop: watch::Receiver<bool>,
) -> ReceiverStream<io::Result<Peer>> {
    let (sender, incoming) = mpsc::channel(16);
    let connections = Arc::new(Connections {
        most: api.connections,
        most_per_user: api.connections_per_user,
        by_user: Mutex::default(),
    });
    let peer_timeout = api.peer_timeout;
    tokio::spawn(async move {
        let accepting = async {
            loop {
                if let Some(peer) = next(&listener, &connections, peer_timeout, (&access, &events)).await
                    && sender.send(Ok(peer)).await.is_err()
                {
                    return;
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stopped(stop) => {}
        }
    });
    ReceiverStream::new(incoming)
}

async fn next(
    listener: &UnixListener,
    connections: &Arc<Connections>,
    peer_timeout: Duration,
    (access, events): (&Access, &Events),
) -> Option<Peer> {
    let stream = match listener.accept().await {
        Ok((stream, _)) => stream,
        Err(error) => {
            // An error of one connection, or a lack of descriptors that will pass.
            tracing::warn!("the API's socket: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            return None;
        }
    };
    let caller = caller(&stream).ok()?;
    let user = caller.uid;
    let party = match access.right_of(&caller) {
        Right::Nothing => Party::Strangers,
        Right::Look | Right::Own => Party::User(user),
        Right::Change => Party::Operator(user),
    };
    let Some(place) = connections.reserve(party) else {
        events.report(Report {
            severity: Severity::Warning,
            reason: "VcudaApiCrowded".into(),
            message: format!(
                "user {user} has too many connections to the manager's socket; the next is refused"
            ),
            tenant: None,
            gpu: None,
            host_pid: None,
        });
        return None;
    };
    Some(Peer {
        stream,
        caller,
        received: 0,
        preface_deadline: Some(Box::pin(tokio::time::sleep(peer_timeout))),
        _place: place,
    })
}

/// The process at the other end. Its supplementary groups count only if the kernel (4.13 or later) tells them.
fn caller(stream: &UnixStream) -> io::Result<Caller> {
    let credentials = stream.peer_cred()?;
    let mut groups = peer_groups(stream).unwrap_or_default();
    groups.push(credentials.gid());
    Ok(Caller { uid: credentials.uid(), groups: groups.into() })
}

#[derive(Debug)]
pub(super) struct Peer {
    stream: UnixStream,
    caller: Caller,
    received: usize,
    /// Time by which the peer must have sent its preface. From then on the server's pings detect a dead peer.
    preface_deadline: Option<Pin<Box<Sleep>>>,
    _place: Place,
}

impl Connected for Peer {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.caller.clone()
    }
}

impl AsyncRead for Peer {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let peer = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut peer.stream).poll_read(cx, buffer);
        if read.is_ready() {
            peer.received += buffer.filled().len().saturating_sub(before);
            if peer.received >= PREFACE_BYTES {
                peer.preface_deadline = None;
            }
            return read;
        }
        let is_over = match &mut peer.preface_deadline {
            Some(deadline) => deadline.as_mut().poll(cx).is_ready(),
            None => false,
        };
        if is_over { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { Poll::Pending }
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_of_users_leave_places_for_those_that_may_change_all() {
        let api = Api::default();
        let connections = Arc::new(Connections {
            most: api.connections,
            most_per_user: api.connections_per_user,
            by_user: Mutex::default(),
        });
        let take = |party| std::iter::from_fn(|| connections.reserve(party)).collect::<Vec<_>>();
        let of_users = [Party::User(1000), Party::User(1001), Party::User(1002)].map(take);
        let of_users: Vec<Place> = of_users.into_iter().flatten().collect();
        assert_eq!(of_users.len(), api.connections / 4 * 3);
        assert_eq!(take(Party::Strangers).len(), 0);
        // Only one of them takes all places that are left; what the users give back is for all.
        assert_eq!(take(Party::Operator(0)).len(), api.connections / 4);
        drop(of_users);
        let of_root = take(Party::Operator(0));
        assert_eq!(of_root.len(), api.connections_per_user);
        assert_eq!(take(Party::Operator(70)).len(), api.connections - of_root.len());
        drop(of_root);
        assert!(connections.by_user.lock().is_empty());
    }
}
