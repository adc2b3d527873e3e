//! Rights of callers, checked for each call before its service sees it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;

use super::timed::method_of;
use crate::access::{Access, Caller, Right};

/// Methods on grants, of which a user may change its own.
const OF_GRANTS: [&str; 3] = ["Grants/Create", "Grants/Resize", "Grants/Release"];
/// Methods that read only. Any other, but for [`OF_GRANTS`], takes the right to change.
const LOOKS: [&str; 11] = [
    "Grants/CheckChanges",
    "Grants/Get",
    "Grants/GetContainerEdits",
    "Grants/List",
    "Grants/Watch",
    "Grants/CheckSuspend",
    "Node/ListGpus",
    "Node/ListContainers",
    "Node/WatchEvents",
    "Node/GetStatus",
    "Node/GetUsage",
];

/// A service whose calls are refused to callers without the right to them.
#[derive(Debug, Clone)]
pub(super) struct Guarded<S> {
    inner: S,
    access: Arc<Access>,
}

impl<S> Guarded<S> {
    pub(super) fn new(inner: S, access: &Arc<Access>) -> Self {
        Self { inner, access: Arc::clone(access) }
    }
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<B>> for Guarded<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let method = method_of(request.uri().path());
        let caller = request.extensions().get::<Caller>().cloned();
        let right = caller.as_ref().map_or(Right::Nothing, |caller| self.access.right_of(caller));
        if right >= needed(method) {
            request.extensions_mut().insert(right);
            return Box::pin(self.inner.call(request));
        }
        let access = Arc::clone(&self.access);
        Box::pin(async move { Ok(refused(access, caller, method).await.into_http()) })
    }
}

/// The right that a method takes.
fn needed(method: &str) -> Right {
    if LOOKS.contains(&method) {
        Right::Look
    } else if OF_GRANTS.contains(&method) {
        Right::Own
    } else {
        Right::Change
    }
}

/// Status of a refused call.
async fn refused(access: Arc<Access>, caller: Option<Caller>, method: &'static str) -> Status {
    let Some(caller) = caller else {
        return Status::permission_denied(
            "the kernel does not tell who calls; connect to the manager's socket",
        );
    };
    // The system's list of users may lie on another machine.
    let text = tokio::task::spawn_blocking(move || access.refusal(&caller, method)).await;
    let text = text.unwrap_or_else(|_| format!("{method} is refused to this user"));
    tracing::info!("{text}");
    Status::permission_denied(text)
}

#[cfg(test)]
mod tests {
    use super::super::timed::METHODS;
    use super::*;

    /// Methods that need the right to change. A new method belongs here or to [`LOOKS`].
    const CHANGES: [&str; 9] = [
        "Grants/Create",
        "Grants/Resize",
        "Grants/SetHolder",
        "Grants/Release",
        "Grants/Reconcile",
        "Grants/Suspend",
        "Grants/Resume",
        "Grants/LimitContainer",
        "Node/Cordon",
    ];

    #[test]
    fn each_method_is_known_to_look_or_to_change() {
        for method in METHODS {
            assert!(LOOKS.contains(&method) != CHANGES.contains(&method), "{method}");
            assert_eq!(needed(method) == Right::Look, LOOKS.contains(&method), "{method}");
        }
        assert_eq!(LOOKS.len() + CHANGES.len(), METHODS.len());
        assert!(OF_GRANTS.iter().all(|method| CHANGES.contains(method)));
        for method in ["Grants/Reconcile", "Grants/Suspend", "Node/Cordon", "other"] {
            assert_eq!(needed(method), Right::Change);
        }
    }
}
