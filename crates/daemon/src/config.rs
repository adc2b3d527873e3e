//! Loader of configuration files. Errors name file, line, value and remedy.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use thiserror::Error;

pub use crate::logging::Log as LogTable;

/// Failure to load a configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {}; name another with --config, or create it", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// Values are wrong, or contradict each other.
    #[error("{0}")]
    Together(String),
}

/// Reads the `named` file, or the one at `default`, which may be missing. Returns its path and its text.
pub fn read<'a>(named: Option<&'a Path>, default: &'a Path) -> Result<(&'a Path, String), ConfigError> {
    let path = named.unwrap_or(default);
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((path, text)),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok((path, String::new())),
        Err(error) => Err(ConfigError::Unreadable(path.to_owned(), error)),
    }
}

/// Parses `text`, the content of the file at `path`. Fails with all wrong values, in the order of the file: the lines of a wrong one are
/// left out, and the rest read again.
pub fn parse<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, ConfigError> {
    let (mut left, mut wrong) = (text.to_owned(), BTreeMap::new());
    // What is left may be no TOML any more, or lack what was left out.
    while wrong.is_empty() || left.parse::<toml::Table>().is_ok() {
        let error = match toml::from_str(&left) {
            Ok(parsed) if wrong.is_empty() => return Ok(parsed),
            Ok(_) => break,
            Err(error) if !wrong.is_empty() && error.message().starts_with("missing field") => break,
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        let [first, last] = [span.start, span.end.saturating_sub(1)].map(|offset| line_of(&left, offset));
        if wrong.contains_key(&first) {
            break;
        }
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        wrong.insert(first, format!("{}:{first}: {message}", path.display()));
        left = without_lines(&left, first, last);
    }
    Err(ConfigError::Together(wrong.into_values().collect::<Vec<_>>().join("; ")))
}

/// `text` with these lines (from 1) emptied; with the header of a table all of that table.
fn without_lines(text: &str, first: usize, last: usize) -> String {
    let mut is_in_table = false;
    let kept = (1..).zip(text.split('\n')).map(|(number, line)| {
        let is_out = (first..=last).contains(&number);
        if line.trim_start().starts_with('[') {
            is_in_table = is_out;
        }
        if is_out || is_in_table { "" } else { line }
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// Line number (from 1) of the byte at `offset`.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Refuses a relative path, which would depend on the daemon's working directory. `key` is its name in the configuration.
pub fn absolute(key: &str, path: &Path) -> Result<(), ConfigError> {
    match path.is_absolute() {
        true => Ok(()),
        false => Err(ConfigError::Together(format!(
            "{key} = \"{}\": write an absolute path, such as /run/vcuda",
            path.display()
        ))),
    }
}

/// Host name, the default of the node's name.
pub fn host_name() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[expect(dead_code, reason = "it is read to be refused")]
        number: u32,
    }

    #[test]
    fn only_the_default_file_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let (missing, there) = (folder.path().join("missing"), folder.path().join("there"));
        std::fs::write(&there, "a").unwrap();
        assert_eq!(read(None, &missing).unwrap(), (missing.as_path(), String::new()));
        assert_eq!(read(Some(&there), &missing).unwrap(), (there.as_path(), "a".into()));
        let error = read(Some(&missing), &there).unwrap_err().to_string();
        assert!(error.starts_with(&missing.display().to_string()), "{error}");
        // A directory does not count as missing.
        assert!(read(None, folder.path()).is_err());
    }

    #[test]
    fn an_error_is_one_line_and_names_its_own() {
        for (text, expected) in [
            ("\n\nnumber = \"a\"", "f.toml:3: invalid type"),
            ("number = 1\nnumbr = 2", "f.toml:2: unknown field `numbr`"),
            ("number = ", "f.toml:1: "),
            (
                "number = [\n  1,\n]\nb = 2\n",
                "f.toml:1: invalid type: sequence, expected u32; f.toml:4: unknown field `b`",
            ),
            (
                "[a]\nb = 1\n[c]",
                "f.toml:1: unknown field `a`, expected `number`; f.toml:3: unknown field `c`",
            ),
            ("a = [\n  1,\n]\nb = 2\n", "f.toml:1: unknown field `a`"),
        ] {
            let error = parse::<File>(text, Path::new("f.toml")).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_path_that_depends_on_where_one_is_is_refused() {
        assert!(absolute("root", Path::new("/run")).is_ok());
        let error = absolute("root", Path::new("run")).unwrap_err().to_string();
        assert!(error.starts_with("root = \"run\": write an absolute path"), "{error}");
    }
}
