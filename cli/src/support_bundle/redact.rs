//! Removal of what looks like a secret from configuration and logs.

/// Words in the name of a value that may be a secret.
const SECRET: [&str; 9] =
    ["password", "passwd", "secret", "token", "apikey", "api_key", "api-key", "credential", "authorization"];
const REMOVED: &str = "(removed)";

/// The text without values that look like secrets: those of a name such as `token`, what follows `Bearer` or stands before the `@` of a
/// URL, and PEM blocks. Each line stays a line.
pub(super) fn without_secrets(text: &str) -> String {
    let mut is_pem = false;
    let mut clean = String::new();
    for line in text.lines() {
        let begins = line.contains("-----BEGIN ");
        if is_pem || begins {
            is_pem = !line.contains("-----END ");
            clean.push_str(REMOVED);
        } else {
            clean.push_str(&without_user(&without_value(line)));
        }
        clean.push('\n');
    }
    clean
}

/// A line without the value behind the first name of a secret.
fn without_value(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let places = SECRET.iter().flat_map(|name| {
        let found = lower.match_indices(name);
        found.filter_map(|(at, name)| value_at(&lower, at, at + name.len()))
    });
    let bearer = lower.find("bearer ").map(|at| at + "bearer ".len());
    match places.chain(bearer).min().and_then(|value| line.get(..value)) {
        Some(before) => format!("{} {REMOVED}", before.trim_end()),
        None => line.to_owned(),
    }
}

/// Where the value of a name begins that has a secret's word from `begin` to `end`; `None` if no value follows.
fn value_at(line: &str, begin: usize, end: usize) -> Option<usize> {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "_-\"'".contains(letter);
    let behind = line.get(end..)?.trim_start_matches(is_of_name);
    let is_option = || {
        let word = line.get(..begin)?.rsplit(' ').next()?;
        (word.starts_with("--") && behind.starts_with(' ')).then_some(())
    };
    let is_assigned = behind.trim_start().starts_with(['=', ':']);
    (is_assigned || is_option().is_some()).then(|| {
        let value = behind.trim_start().trim_start_matches(['=', ':']);
        line.len() - value.len()
    })
}

/// A line without user and password in URLs.
fn without_user(line: &str) -> String {
    let mut clean = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        let end = after.find(['/', ' ', '"', '\'']).unwrap_or(after.len());
        let (host, behind) = after.split_at(end);
        match host.rsplit_once('@') {
            Some((_, host)) => clean.push_str(&format!("{REMOVED}@{host}")),
            None => clean.push_str(host),
        }
        rest = behind;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_the_rest_stays() {
        for (line, wanted) in [
            ("root = \"/run/vcuda\"", "root = \"/run/vcuda\""),
            ("token = \"s3cr3t\"", "token = (removed)"),
            ("{\"API_TOKEN_1\": \"s3cr3t\"}", "{\"API_TOKEN_1\": (removed)"),
            ("x --password s3cr3t", "x --password (removed)"),
            ("Authorization: Bearer s3cr3t", "Authorization: (removed)"),
            ("sent bearer s3cr3t", "sent bearer (removed)"),
            (
                "a launch waits for tokens of its token bucket",
                "a launch waits for tokens of its token bucket",
            ),
            ("proxy = \"http://me:s3cr3t@host:1/x\"", "proxy = \"http://(removed)@host:1/x\""),
            ("see http://host/a@b and c@d", "see http://host/a@b and c@d"),
        ] {
            assert_eq!(without_secrets(line), format!("{wanted}\n"));
        }
        let pem = "a\n-----BEGIN RSA PRIVATE KEY-----\ns3cr3t\n-----END RSA PRIVATE KEY-----\nb";
        assert_eq!(without_secrets(pem), "a\n(removed)\n(removed)\n(removed)\nb\n");
    }
}
