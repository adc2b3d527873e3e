//! `vcuda usage`: what tenants, namespaces or users used over hours or days, as the manager recorded it.

use std::io::Write as _;

use nix::unistd::{Uid, User};
use serde::Serialize;
use vcuda_manager_api::v1::{GetUsageRequest, GetUsageResponse, UsageKey, UsageRow};

use crate::args::{UsageArgs, UsageBy};
use crate::config::Environment;
use crate::failure::Failure;
use crate::manager_client::ManagerClient;
use crate::output::Output;
use crate::render::columns::{Column, Table};
use crate::render::words::{mib_of, moment, natural, percent_of, seconds};
use crate::render::{clipped, seconds_of};

/// JSON form. The keys are stable for other programs.
#[derive(Debug, Serialize)]
struct Document {
    by: &'static str,
    from_unix_ms: i64,
    to_unix_ms: i64,
    rows: Vec<Line>,
}

/// A row of the table. Its fields are those of JSON and the columns of CSV.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line {
    key: String,
    gpu_seconds: f64,
    memory_requested_bytes: u64,
    memory_peak_bytes: u64,
    denials: u64,
    throttled_seconds: f64,
}

/// Maximum width of a key (columns): three names of Kubernetes.
const KEY_WIDTH: usize = 800;
const CSV_HEADING: &str =
    "key,gpu_seconds,memory_requested_bytes,memory_peak_bytes,denials,throttled_seconds";

pub(crate) fn usage(args: &UsageArgs, environment: &Environment) -> Result<(), Failure> {
    let node = ManagerClient::required(environment)?;
    let answer = node
        .usage(GetUsageRequest { since_seconds: args.since.seconds, by: key(args.by).into() })
        .map_err(|failure| too_long(failure, args))?;
    let lines = lines(&answer, args.by);
    let mut out = std::io::stdout().lock();
    if args.csv {
        out.write_all(csv(&lines).as_bytes())?;
    } else if args.json {
        serde_json::to_writer_pretty(
            &mut out,
            &Document {
                by: name(args.by),
                from_unix_ms: answer.from_unix_ms,
                to_unix_ms: answer.to_unix_ms,
                rows: lines,
            },
        )?;
        writeln!(out)?;
    } else {
        let heading = format!("From {} to {}", moment(answer.from_unix_ms), moment(answer.to_unix_ms));
        writeln!(out, "{heading}")?;
        out.write_all(table(&lines, args.by, &Output::find(environment)).as_bytes())?;
    }
    Ok(())
}

/// The manager's refusal of a period names the option instead of the API's field.
fn too_long(failure: Failure, args: &UsageArgs) -> Failure {
    match failure {
        Failure::Usage(words) => Failure::Usage(match words.split_once(": ") {
            Some((field, rest)) if field.starts_with("since_seconds ") => {
                format!("--since {}: {rest}", args.since)
            }
            _ => words,
        }),
        other => other,
    }
}

fn key(by: UsageBy) -> UsageKey {
    match by {
        UsageBy::Tenant => UsageKey::Tenant,
        UsageBy::Namespace => UsageKey::Namespace,
        UsageBy::User => UsageKey::User,
    }
}

fn name(by: UsageBy) -> &'static str {
    match by {
        UsageBy::Tenant => "tenant",
        UsageBy::Namespace => "namespace",
        UsageBy::User => "user",
    }
}

/// The rows, the highest use of GPU time first.
fn lines(answer: &GetUsageResponse, by: UsageBy) -> Vec<Line> {
    let mut lines: Vec<Line> = answer.rows.iter().map(|row| line(row, by)).collect();
    lines.sort_by(|one, other| {
        let more = other.gpu_seconds.total_cmp(&one.gpu_seconds);
        more.then_with(|| natural(&one.key, &other.key))
    });
    lines
}

fn line(row: &UsageRow, by: UsageBy) -> Line {
    let user = || Some(User::from_uid(Uid::from_raw(row.key.parse().ok()?)).ok()??.name);
    let name = (by == UsageBy::User).then(user).flatten();
    Line {
        // The name of a tenant's directory is what its user wrote.
        key: clipped(&name.unwrap_or_else(|| row.key.clone()), KEY_WIDTH),
        gpu_seconds: seconds_of(row.gpu_ns),
        memory_requested_bytes: row.memory_requested_bytes,
        memory_peak_bytes: row.memory_peak_bytes,
        denials: row.denials,
        throttled_seconds: seconds_of(row.throttled_ns),
    }
}

fn csv(lines: &[Line]) -> String {
    let mut text = format!("{CSV_HEADING}\n");
    for line in lines {
        text += &format!(
            "{},{:.3},{},{},{},{:.3}\n",
            quoted(&line.key),
            line.gpu_seconds,
            line.memory_requested_bytes,
            line.memory_peak_bytes,
            line.denials,
            line.throttled_seconds
        );
    }
    text
}

/// A field of CSV, in quotes if it needs them (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn table(lines: &[Line], by: UsageBy, output: &Output) -> String {
    let title = match by {
        UsageBy::Tenant => "TENANT",
        UsageBy::Namespace => "NAMESPACE",
        UsageBy::User => "USER",
    };
    let mut table = Table::new(&[
        Column::telling(title, 0, 8),
        Column::figure("GPU TIME", 0),
        Column::figure("PEAK / REQUESTED", 0),
        Column::figure("PEAK", 1),
        Column::figure("DENIALS", 2),
        Column::figure("THROTTLED", 3),
    ]);
    for line in lines {
        let (peak, requested) = (line.memory_peak_bytes, line.memory_requested_bytes);
        let key = if line.key.is_empty() { "-" } else { &line.key };
        table.row([
            key.into(),
            seconds(line.gpu_seconds).into(),
            mib_of(peak, requested).into(),
            format!("{}%", percent_of(peak, requested)).into(),
            line.denials.to_string().into(),
            seconds(line.throttled_seconds).into(),
        ]);
    }
    if lines.is_empty() {
        table.text(0, "nothing was used");
    }
    let lines = table.lines(output.width, output.is_colored);
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, gpu_ns: u64) -> UsageRow {
        UsageRow {
            key: key.to_owned(),
            gpu_ns,
            memory_requested_bytes: 8 << 30,
            memory_peak_bytes: 2469 << 20,
            denials: 3,
            throttled_ns: 1_500_000_000,
        }
    }

    fn answer() -> GetUsageResponse {
        GetUsageResponse {
            rows: vec![
                row("web-10", 1_000_000),
                row("team-of-a-long-name/pod-7d9f/main", 9_000_000_000_000),
                row("web-9", 1_000_000),
                row("", 0),
            ],
            ..GetUsageResponse::default()
        }
    }

    #[test]
    fn csv_has_plain_numbers_and_quotes_where_they_are_needed() {
        let mut answer = answer();
        answer.rows.push(row("a\"b,c", u64::MAX));
        let text = csv(&lines(&answer, UsageBy::Namespace));
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], CSV_HEADING);
        assert_eq!(rows[1], "\"a\"\"b,c\",18446744073.709,8589934592,2588934144,3,1.500");
        assert!(rows[5].starts_with(",0.000,"), "{text}");
    }
}
