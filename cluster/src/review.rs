//! AdmissionReview of `admission.k8s.io/v1`: the API server's question and our answer (Kubernetes API, "Dynamic Admission
//! Control").

use serde::Deserialize;
use serde_json::{Value, json};
use thiserror::Error;

/// The one version that is spoken.
const VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
pub(crate) const POD: &str = "Pod";
/// Kinds of claims and of what they are made of.
pub(crate) const CLAIMS: [&str; 2] = ["ResourceClaim", "ResourceClaimTemplate"];

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum ReviewError {
    #[error("not an AdmissionReview: {0}")]
    Form(String),
    #[error(
        "apiVersion \"{0}\", kind \"{1}\": this webhook takes {VERSION}, {KIND} (admissionReviewVersions: [v1])"
    )]
    Version(String, String),
    #[error("an AdmissionReview without a request")]
    NoRequest,
    #[error("a request for a {0}: this page is for {1}; see the rules of the webhook's configuration")]
    Kind(String, String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// The API server's question, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    /// Repeated in the answer.
    pub(crate) uid: String,
    kind: GroupVersionKind,
    #[serde(default)]
    pub(crate) namespace: String,
    /// The object that is to be made.
    #[serde(default)]
    pub(crate) object: Value,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct GroupVersionKind {
    kind: String,
}

impl Request {
    pub(crate) fn is_of_pod(&self) -> bool {
        self.kind.kind == POD
    }
}

/// Reads a question about an object of one of these kinds.
pub(crate) fn read(body: &[u8], kinds: &[&str]) -> Result<Request, ReviewError> {
    let review: Value =
        serde_json::from_slice(body).map_err(|error| ReviewError::Form(format!("not JSON: {error}")))?;
    if !review.is_object() {
        return Err(ReviewError::Form("not an object".to_owned()));
    }
    let review: Review =
        serde_json::from_value(review).map_err(|error| ReviewError::Form(error.to_string()))?;
    if review.api_version != VERSION || review.kind != KIND {
        return Err(ReviewError::Version(review.api_version, review.kind));
    }
    let request = review.request.ok_or(ReviewError::NoRequest)?;
    let kind = request.kind.kind.as_str();
    if !kinds.contains(&kind) {
        return Err(ReviewError::Kind(kind.to_owned(), kinds.join(", ")));
    }
    if !request.object.is_object() {
        return Err(ReviewError::Form(format!("no {kind} in request.object")));
    }
    Ok(request)
}

/// The answer that admits, with a patch (RFC 6902) unless it is empty.
pub(crate) fn admitted(uid: &str, patch: &json_patch::Patch) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if let Some(response) = response.as_object_mut().filter(|_| !patch.0.is_empty()) {
        let patch = serde_json::to_vec(patch).unwrap_or_default();
        response.insert("patchType".to_owned(), json!("JSONPatch"));
        response.insert("patch".to_owned(), json!(base64(&patch)));
    }
    answer(response)
}

/// The answer that refuses, with a sentence for the pod's author.
pub(crate) fn refused(uid: &str, why: &str) -> Value {
    answer(json!({
        "uid": uid, "allowed": false,
        "status": {"status": "Failure", "code": 422, "reason": "Invalid", "message": why},
    }))
}

fn answer(response: Value) -> Value {
    json!({"apiVersion": VERSION, "kind": KIND, "response": response})
}

/// Base64 (RFC 4648, section 4), in which JSON carries bytes.
fn base64(bytes: &[u8]) -> String {
    // `ByteString` is k8s-openapi's form of such a field.
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()));
    text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(body: &Value) -> String {
        read(body.to_string().as_bytes(), &[POD, "Service"]).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_question_about_a_pod_is_told() {
        assert!(read(b"{", &[POD]).unwrap_err().to_string().contains("not JSON"));
        let with = |request: Value| json!({"apiVersion": VERSION, "kind": KIND, "request": request});
        for (body, said) in [
            (json!([1]), "not an object"),
            (json!({}), "apiVersion \"\", kind \"\": this webhook takes admission.k8s.io/v1"),
            (json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": KIND}), "v1beta1"),
            (json!({"apiVersion": VERSION, "kind": KIND}), "without a request"),
            (with(json!({})), "missing field `uid`"),
            (
                with(json!({"uid": "u", "kind": {"kind": "Node"}})),
                "a request for a Node: this page is for Pod, Service",
            ),
            (with(json!({"uid": "u", "kind": {"kind": "Pod"}, "object": null})), "no Pod"),
        ] {
            let problem = problem(&body);
            assert!(problem.contains(said), "{problem}");
        }
    }

    #[test]
    fn answers_repeat_the_uid() {
        let patch: json_patch::Patch =
            serde_json::from_value(json!([{"op": "add", "path": "/a", "value": 1}])).unwrap();
        let answer = admitted("u", &patch);
        assert_eq!(answer["response"]["uid"], "u");
        assert_eq!(answer["response"]["patch"], "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d");
        let answer = admitted("u", &json_patch::Patch::default());
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));
        assert_eq!(refused("u", "why")["response"]["status"]["message"], "why");
    }
}
