//! The admission webhook's two pages: `POST /mutate` and `POST /validate`.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::Value;
use tracing::{info, warn};

use crate::admit::{self, Rules};
use crate::counters::Counters;
use crate::review::{self, CLAIMS, POD, Request};

/// Largest question (bytes). The API server takes no object of more than 3 MiB, and sends it once.
const BODY_MAX: usize = 8 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Webhook {
    rules: Arc<Rules>,
    counters: Arc<Counters>,
}

impl Webhook {
    pub(crate) fn new(rules: Rules, counters: Arc<Counters>) -> Self {
        Self { rules: Arc::new(rules), counters }
    }

    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/mutate", post(mutate))
            .route("/validate", post(validate))
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .with_state(self)
    }
}

async fn mutate(State(webhook): State<Webhook>, body: Bytes) -> Response {
    let request = match review::read(&body, &[POD]) {
        Ok(request) => request,
        Err(error) => return wrong(&webhook.counters, "mutate", &error.to_string()),
    };
    let answer = match admit::admit(&request.namespace, &request.object, &webhook.rules) {
        Ok(pod) => {
            let patch = json_patch::diff(&request.object, &pod);
            let result = if patch.0.is_empty() { "unchanged" } else { "changed" };
            webhook.counters.count("mutate", result);
            review::admitted(&request.uid, &patch)
        }
        Err(refused) => refusal(&webhook.counters, "mutate", &request, &refused.to_string()),
    };
    json(&answer)
}

async fn validate(State(webhook): State<Webhook>, body: Bytes) -> Response {
    let [claim, template] = CLAIMS;
    let request = match review::read(&body, &[POD, claim, template]) {
        Ok(request) => request,
        Err(error) => return wrong(&webhook.counters, "validate", &error.to_string()),
    };
    let checked = match request.is_of_pod() {
        true => admit::validate(&request.namespace, &request.object, &webhook.rules),
        false => admit::validate_claim(&request.namespace, &request.object, &webhook.rules),
    };
    let answer = match checked {
        Ok(()) => {
            webhook.counters.count("validate", "admitted");
            review::admitted(&request.uid, &json_patch::Patch::default())
        }
        Err(refused) => refusal(&webhook.counters, "validate", &request, &refused.to_string()),
    };
    json(&answer)
}

fn refusal(counters: &Counters, page: &'static str, request: &Request, why: &str) -> Value {
    counters.count(page, "refused");
    let name = ["/metadata/name", "/metadata/generateName"]
        .into_iter()
        .find_map(|path| request.object.pointer(path)?.as_str());
    info!(page, namespace = request.namespace, object = name, why, "refused");
    review::refused(&request.uid, why)
}

/// The answer to a body that is no question.
fn wrong(counters: &Counters, page: &'static str, why: &str) -> Response {
    counters.count(page, "wrong");
    warn!(page, why, "a request that is no question of the API server");
    (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
}

pub(crate) fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
