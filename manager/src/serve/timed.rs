//! Timing of all API calls, around the whole service.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tonic::Code;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use vcuda_region::clock;

use crate::metrics::Instruments;

/// Known methods. A caller's text must not become a label, as each value is a series for ever.
pub(super) const METHODS: [&str; 20] = [
    "Grants/Create",
    "Grants/Resize",
    "Grants/SetHolder",
    "Grants/Release",
    "Grants/CheckChanges",
    "Grants/Get",
    "Grants/GetContainerEdits",
    "Grants/LimitContainer",
    "Grants/List",
    "Grants/Watch",
    "Grants/Reconcile",
    "Grants/Suspend",
    "Grants/CheckSuspend",
    "Grants/Resume",
    "Node/ListGpus",
    "Node/ListContainers",
    "Node/GetUsage",
    "Node/WatchEvents",
    "Node/GetStatus",
    "Node/Cordon",
];
/// Label of all unknown methods.
const OTHER: &str = "other";

/// A service whose calls are timed until the head of the answer; for a stream, until it begins.
#[derive(Debug, Clone)]
pub(super) struct Timed<S> {
    inner: S,
    instruments: Arc<Instruments>,
}

impl<S> Timed<S> {
    pub(super) fn new(inner: S, instruments: &Arc<Instruments>) -> Self {
        Self { inner, instruments: Arc::clone(instruments) }
    }
}

impl<S: NamedService> NamedService for Timed<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B, A> Service<Request<B>> for Timed<S>
where
    S: Service<Request<B>, Response = Response<A>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<A>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let method = method_of(request.uri().path());
        let instruments = Arc::clone(&self.instruments);
        let began_ns = clock::now_ns();
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await;
            let took = Duration::from_nanos(clock::now_ns().saturating_sub(began_ns));
            if let Ok(answer) = &answer {
                instruments.called(method, code_of(answer), took);
            }
            answer
        })
    }
}

/// The service and method in a path such as `/vcuda.v1.Grants/Create`.
pub(super) fn method_of(path: &str) -> &'static str {
    let method = path.strip_prefix("/vcuda.v1.").unwrap_or_default();
    METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER)
}

/// Status code of an answer. A refusal has it in its head; without one the answer is a success, whose status comes last.
fn code_of<A>(answer: &Response<A>) -> &'static str {
    let status = answer.headers().get("grpc-status");
    match status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes())) {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_of_the_proto_is_known() {
        let proto = include_str!("../../api/proto/vcuda/v1/manager.proto");
        let mut service = "";
        let mut named = Vec::new();
        for line in proto.lines() {
            let words: Vec<&str> = line.split([' ', '(']).filter(|word| !word.is_empty()).collect();
            match words.as_slice() {
                ["service", name, ..] => service = *name,
                ["rpc", name, ..] => named.push(format!("{service}/{name}")),
                _ => {}
            }
        }
        assert_eq!(named, METHODS);
        for method in METHODS {
            assert_eq!(method_of(&format!("/vcuda.v1.{method}")), method);
        }
        assert_eq!(method_of("/vcuda.v1.Grants/Nonsense"), OTHER);
        assert_eq!(method_of("Grants/Create"), OTHER);
    }
}
