//! Each field's range, and what zero means.

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
fn zeros_are_the_defaults_that_the_proto_says() {
    let asked = create(request(|_| {})).unwrap();
    assert_eq!(asked.amounts.memory_bytes, None);
    assert_eq!(
        (asked.amounts.cores_permille, asked.amounts.cores_max_permille),
        (1000, 1000)
    );
    assert_eq!(
        (asked.amounts.policy, asked.amounts.priority),
        (Policy::Fixed, Priority::Normal)
    );
    let burst = v1::Amounts {
        cores_permille: 300,
        policy: v1::Policy::Burst.into(),
        ..v1::Amounts::default()
    };
    let asked = create(request(|request| request.amounts = Some(burst))).unwrap();
    assert_eq!(asked.amounts.cores_max_permille, 1000);
    assert_eq!(
        amounts(Some(amounts_shown(&asked.amounts))).unwrap(),
        asked.amounts
    );
}

#[test]
fn each_field_out_of_its_range_is_named() {
    let uuid = GpuUuid::from_bytes([1; 16]).to_string();
    let with = |change: fn(&mut v1::Amounts)| {
        request(|request| {
            let mut amounts = v1::Amounts::default();
            change(&mut amounts);
            request.amounts = Some(amounts);
        })
    };
    for (field, request) in [
        ("request_id", request(|r| r.request_id.clear())),
        ("request_id", request(|r| r.request_id = "a".repeat(65))),
        ("request_id", request(|r| r.request_id = "a b".to_owned())),
        ("key", request(|r| r.key = "../x".to_owned())),
        ("key", request(|r| r.key = ".new".to_owned())),
        ("key", request(|r| r.key = "a".repeat(41))),
        ("gpu_count", request(|r| r.gpu_count = 0)),
        ("gpu_count", request(|r| r.gpu_count = 17)),
        (
            "gpu_count",
            request(|r| r.gpu_uuids = vec![uuid.clone()]).tap(|r| r.gpu_count = 2),
        ),
        ("gpu_uuids", request(|r| r.gpu_uuids = vec!["GPU-1".to_owned()])),
        ("gpu_uuids", request(|r| r.gpu_uuids = vec![uuid.clone(); 2])),
        ("placement", request(|r| r.placement = 99)),
        (
            "holder.pod",
            request(|r| {
                r.holder = Some(v1::Holder {
                    pod: "a\n".to_owned(),
                    ..v1::Holder::default()
                })
            }),
        ),
        ("amounts.cores_permille", with(|a| a.cores_permille = 1001)),
        ("amounts.cores_max_permille", with(|a| a.cores_max_permille = 999)),
        (
            "amounts.cores_max_permille",
            with(|a| {
                a.policy = v1::Policy::Burst.into();
                a.cores_permille = 500;
                a.cores_max_permille = 400;
            }),
        ),
        ("amounts.weight", with(|a| a.weight = 10_001)),
        ("amounts.policy", with(|a| a.policy = 77)),
        ("amounts.priority", with(|a| a.priority = -1)),
        ("amounts.memory_bytes", with(|a| a.memory_bytes = u64::MAX)),
    ] {
        let refused = create(request).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{field}");
        assert!(
            refused.message().starts_with(field),
            "{field}: {}",
            refused.message()
        );
        assert!(refused.message().len() < 300);
    }
}

trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for v1::CreateGrantRequest {}
