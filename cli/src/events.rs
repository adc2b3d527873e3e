//! `vcuda events`: the events of the node's manager.

use std::collections::BTreeSet;
use std::io::Write as _;

use serde::Serialize;
use vcuda_manager_api::v1::event::Severity;
use vcuda_manager_api::v1::{Event, WatchEventsRequest};

use crate::args::EventsArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::render::clipped;
use crate::render::words::natural;

const MESSAGE_WIDTH: usize = 2000;

/// JSON form of an event. The keys are stable for other programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    number: u64,
    unix_ms: i64,
    severity: &'static str,
    reason: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    container: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    gpu_uuid: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_pid: Option<u32>,
    count: u64,
}

pub(crate) fn events(args: &EventsArgs, environment: &Environment) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    let request = WatchEventsRequest {
        after_number: 0,
        no_follow: !args.follow,
        container_id: match &args.container {
            Some(name) => container(&node, name)?,
            None => String::new(),
        },
    };
    node.events(request, |event| {
        let mut out = std::io::stdout().lock();
        if args.json {
            serde_json::to_writer(&mut out, &document(&event))?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}", line(&event))?;
        }
        // Flushed, as a reader that follows needs each line at once.
        Ok(out.flush()?)
    })
}

/// The kept events as JSON, one object a line.
pub(crate) fn kept(node: &ManagerClient) -> Result<String, Failure> {
    let mut text = String::new();
    each_kept(node, |event| {
        text += &serde_json::to_string(&document(&event))?;
        text.push('\n');
        Ok(())
    })?;
    Ok(text)
}

fn each_kept(node: &ManagerClient, each: impl FnMut(Event) -> Result<(), Failure>) -> Result<(), Failure> {
    let request = WatchEventsRequest { no_follow: true, ..WatchEventsRequest::default() };
    node.events(request, each)
}

/// Id of the container that `name` means: an id, also of one that has ended and has events, else the name of a grant.
fn container(node: &ManagerClient, name: &str) -> Result<String, Failure> {
    let containers = node.containers()?.containers;
    let mut known: BTreeSet<String> = containers.iter().map(|container| container.id.clone()).collect();
    each_kept(node, |event| {
        known.insert(event.container_id);
        Ok(())
    })?;
    // Events of GPUs and of the manager have none.
    known.remove("");
    if known.contains(name) {
        return Ok(name.to_owned());
    }
    let of_name = containers.iter().find(|container| {
        let grant = container.grant.as_ref();
        grant.is_some_and(|grant| grant.key == name)
    });
    of_name.map(|found| found.id.clone()).ok_or_else(|| {
        let mut known: Vec<&str> = known.iter().map(String::as_str).collect();
        known.sort_by(|one, other| natural(one, other));
        Failure::Usage(match known.as_slice() {
            [] => format!("events --container {name}: no such container; there is none"),
            known => format!("events --container {name}: no such container; there are: {}", known.join(", ")),
        })
    })
}

fn severity(event: &Event) -> &'static str {
    match event.severity() {
        Severity::Unspecified | Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn document(event: &Event) -> Document<'_> {
    Document {
        number: event.number,
        unix_ms: event.unix_ms,
        severity: severity(event),
        reason: &event.reason,
        message: &event.message,
        container: &event.container_id,
        gpu_uuid: &event.gpu_uuid,
        host_pid: (event.host_pid != 0).then_some(event.host_pid),
        count: event.count,
    }
}

/// A line such as `2026-11-21T21:06:46Z warning VcudaMemoryDenied web-7: ... (3 times)`. A message that begins with its GPU
/// is printed without the GPU before it.
fn line(event: &Event) -> String {
    let whose = match (event.container_id.as_str(), event.gpu_uuid.as_str()) {
        ("", "") => String::new(),
        ("", gpu) if event.message.starts_with(gpu) => String::new(),
        ("", gpu) => format!(" {gpu}"),
        (container, _) => format!(" {container}"),
    };
    let times = match event.count {
        0 | 1 => String::new(),
        more => format!(" ({more} times)"),
    };
    format!(
        "{} {:<7} {}{}: {}{times}",
        utc(event.unix_ms),
        severity(event),
        clipped(&event.reason, 64),
        clipped(&whose, 64),
        clipped(&event.message, MESSAGE_WIDTH),
    )
}

/// Time in RFC 3339 with seconds.
fn utc(unix_ms: i64) -> String {
    jiff::Timestamp::from_second(unix_ms.div_euclid(1000))
        .map_or_else(|_| unix_ms.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(utc(1_795_295_206_999), "2026-11-21T21:06:46Z");
        assert_eq!(utc(-1), "1969-12-31T23:59:59Z");
        assert_eq!(utc(i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn a_line_has_no_control_characters() {
        let event = Event {
            reason: "VcudaMemoryDenied".to_owned(),
            message: "\u{1b}[2Jdenied\nagain".to_owned(),
            container_id: "web-7".to_owned(),
            count: 3,
            ..Event::default()
        };
        let line = line(&event);
        assert!(!line.chars().any(char::is_control), "{line:?}");
        assert!(line.ends_with(" VcudaMemoryDenied web-7: ?[2Jdenied?again (3 times)"), "{line}");
    }

    #[test]
    fn a_line_names_its_gpu_once() {
        let mut event = Event {
            reason: "VcudaGpuAppeared".to_owned(),
            message: "GPU-1 (H200) was found".to_owned(),
            gpu_uuid: "GPU-1".to_owned(),
            ..Event::default()
        };
        assert!(line(&event).ends_with(" VcudaGpuAppeared: GPU-1 (H200) was found"));
        event.message = "XID 48".to_owned();
        assert!(line(&event).ends_with(" VcudaGpuAppeared GPU-1: XID 48"));
    }
}
