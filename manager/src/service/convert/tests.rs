//! Tests of each field's range.

use super::*;

fn request(change: impl FnOnce(&mut v1::CreateGrantRequest)) -> v1::CreateGrantRequest {
    let mut request = v1::CreateGrantRequest {
        request_id: "r".to_owned(),
        key: "k".to_owned(),
        gpu_count: 1,
        ..v1::CreateGrantRequest::default()
    };
    change(&mut request);
    request
}

#[test]
fn each_field_out_of_its_range_is_named() {
    let uuid = GpuUuid::from_bytes([1; 16]).to_string();
    for (field, request) in [
        ("request_id", request(|r| r.request_id.clear())),
        ("request_id", request(|r| r.request_id = "a".repeat(65))),
        ("request_id", request(|r| r.request_id = "a b".to_owned())),
        ("key", request(|r| r.key = "../x".to_owned())),
        ("key", request(|r| r.key = ".new".to_owned())),
        ("key", request(|r| r.key = "a".repeat(41))),
        ("gpu_count", request(|r| r.gpu_count = 0)),
        ("gpu_count", request(|r| r.gpu_count = 17)),
        ("gpu_count", request(|r| r.gpu_uuids = vec![uuid.clone()]).tap(|r| r.gpu_count = 2)),
        ("gpu_uuids", request(|r| r.gpu_uuids = vec!["GPU-1".to_owned()])),
        ("gpu_uuids", request(|r| r.gpu_uuids = vec![uuid.clone(); 2])),
        ("placement", request(|r| r.placement = 99)),
        (
            "holder.pod",
            request(|r| r.holder = Some(v1::Holder { pod: "a\n".to_owned(), ..v1::Holder::default() })),
        ),
        (
            "amounts.weight",
            request(|r| r.amounts = Some(v1::Amounts { weight: 10_001, ..v1::Amounts::default() })),
        ),
    ] {
        let refused = create(request, None).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{field}");
        assert!(refused.message().starts_with(field), "{field}: {}", refused.message());
        assert!(refused.message().len() < 300);
    }
}

#[test]
fn a_period_of_usage_is_within_what_is_kept() {
    let asked = |since_seconds, by| usage(v1::GetUsageRequest { since_seconds, by });
    assert_eq!(asked(1, 0).unwrap(), (By::Tenant, 1));
    assert_eq!(asked(KEPT_S, 3).unwrap(), (By::User, KEPT_S));
    for (since_seconds, by, words) in [
        (0, 0, "since_seconds 0: usage is kept for 2678400 s (31 days)"),
        (KEPT_S + 1, 0, "since_seconds 2678401: usage is kept for"),
        (u64::MAX, 1, "give 1 to 2678400"),
        (1, 4, "by 4: there is none; give tenant, namespace or user"),
        (1, -1, "by -1: "),
    ] {
        let refused = asked(since_seconds, by).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        assert!(refused.message().contains(words), "{}", refused.message());
    }
}

#[test]
fn a_refused_key_is_explained() {
    let refused = create(request(|r| r.key = ".new".to_owned()), None).unwrap_err();
    let rule = "give 1 to 40 letters, digits, '.', '_' or '-', and the first is not '.'";
    assert!(refused.message().ends_with(rule), "{}", refused.message());
}

trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for v1::CreateGrantRequest {}
