//! The shim's environment variables, read once, at the first use of a GPU. They can only lower what `limits` grants
//! (I11).

use std::env::var_os;
use std::path::PathBuf;

/// The tenant's directory, set by `vcuda run`. Ignored in a container that has `/etc/vcuda/limits`.
pub(crate) const ENV_DIRECTORY: &str = vcuda_region::directory::ENV_DIRECTORY;
/// A lower memory limit for this process, as Kubernetes writes sizes: `4Gi`, `4GiB`, `4096MiB`, `4G`.
pub(crate) const ENV_MEMORY: &str = "VCUDA_MEMORY";
/// A file to which the shim appends what it does and why.
pub(crate) const ENV_LOG: &str = "VCUDA_LOG";

/// The values of the environment variables.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// [`ENV_DIRECTORY`].
    pub(crate) directory: Option<PathBuf>,
    /// [`ENV_MEMORY`], in bytes.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// [`ENV_LOG`].
    pub(crate) log: Option<PathBuf>,
    /// Variables whose values are not valid.
    pub(crate) rejected: Vec<&'static str>,
}

impl Config {
    /// Reads the environment.
    pub(crate) fn from_environment() -> Self {
        let path = |name| var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let mut config = Self { directory: path(ENV_DIRECTORY), log: path(ENV_LOG), ..Self::default() };
        if let Some(text) = var_os(ENV_MEMORY) {
            config.memory_limit_bytes = text.to_str().and_then(parse_bytes);
            if config.memory_limit_bytes.is_none() {
                config.rejected.push(ENV_MEMORY);
            }
        }
        config
    }
}

/// `4Gi`, `4.5GiB`, `4096MiB`, `4G`, `4GB`, `4294967296`: bytes, more than 0. Parts of a byte are dropped.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim().trim_end_matches('B') {
        "" => 1,
        "k" | "K" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 12)?;
    let part = fraction.parse::<u128>().ok()? * u128::from(scale) / 10_u128.pow(digits);
    let bytes = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale) + part;
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_kubernetes_writes_them() {
        for text in ["4Gi", "4GiB", "4096MiB", "4294967296", " 4Gi "] {
            assert_eq!(parse_bytes(text), Some(4 << 30), "{text}");
        }
        assert_eq!(parse_bytes("4G"), Some(4_000_000_000));
        assert_eq!(parse_bytes("4.5Gi"), Some(9 << 29));
        assert_eq!(parse_bytes("0.25k"), Some(250));
        for text in ["", "Gi", "-1", "4Q", "0", "99999999999999Ti", "4.Gi", ".5Gi", "1.2.3Gi", "rubbish"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }
}
