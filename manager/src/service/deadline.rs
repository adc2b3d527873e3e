//! Deadline of a request: its own (`grpc-timeout`), or the default.

use std::future::Future;
use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

/// Waits for `work` until the request's deadline, at most for `most`. Begun work is finished even then.
pub(super) async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(time, work).await {
        Ok(done) => done,
        Err(_) => Err(Status::deadline_exceeded(
            "the time is over; what was begun is finished: repeat the request with its request_id to see how",
        )),
    }
}

/// Deadline of a request. It is a little shorter than the header says, as the transport would cancel without a reason.
pub(super) fn deadline_of<T>(request: &Request<T>, most: Duration) -> Duration {
    let given = from_header(request.metadata()).unwrap_or(most).min(most);
    given - (given / 10).min(Duration::from_millis(20))
}

/// Timeout in the header: at most eight digits and a unit (gRPC over HTTP/2, "Timeout").
fn from_header(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_of_header_and_default() {
        let most = Duration::from_secs(30);
        let time = |text: &str| {
            let mut request = Request::new(());
            request.metadata_mut().insert("grpc-timeout", text.parse().unwrap());
            deadline_of(&request, most)
        };
        let whole = most - Duration::from_millis(20);
        assert_eq!(deadline_of(&Request::new(()), most), whole);
        assert_eq!(time("2S"), Duration::from_millis(1980));
        assert_eq!(time("100m"), Duration::from_millis(90));
        for nonsense in ["99999999H", "", "S", "5", "123456789S", "-1S", "5x", "1 S"] {
            assert_eq!(time(nonsense), whole, "{nonsense}");
        }
    }
}
