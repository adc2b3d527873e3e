//! Tables of users' limits.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use vcuda_daemon::value::parsed;
use vcuda_quota::MemorySize;

use crate::users::{ALL_OTHERS, UserLimit, UserLimits};

/// Whom a table is for, with its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct UserKey {
    place: String,
    whom: Whom,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    User(u32),
    /// Each member of the group.
    Members(u32),
    Others,
}

impl<'de> Deserialize<'de> for UserKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let place = String::deserialize(deserializer)?;
        let wrong = |why: &str| {
            D::Error::custom(format!(
                "users.\"{place}\": {why}; write a user, \"@GROUP\" for each member of a group, or \"{ALL_OTHERS}\" for all others"
            ))
        };
        let whom = match place.strip_prefix('@') {
            _ if place == ALL_OTHERS => Whom::Others,
            Some(group) => Whom::Members(crate::value::group(group).ok_or_else(|| wrong("no such group"))?),
            None => Whom::User(user(&place).ok_or_else(|| wrong("no such user"))?),
        };
        Ok(Self { place, whom })
    }
}

/// Number of a user, given by name or number.
fn user(text: &str) -> Option<u32> {
    let named = || nix::unistd::User::from_name(text).ok().flatten();
    text.parse().ok().or_else(|| Some(named()?.uid.as_raw()))
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct UserTable {
    #[serde(deserialize_with = "memory")]
    memory: Option<u64>,
    #[serde(deserialize_with = "cores")]
    cores: Option<u32>,
    grants: Option<usize>,
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    parsed(deserializer, |text| match MemorySize::with_unit(text) {
        Ok(size) => Ok(Some(size.0)),
        Err(error) => Err(error.to_string()),
    })
}

fn cores<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    parsed(deserializer, |text| {
        let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
        let digit = tenth.parse::<u32>().ok().filter(|_| tenth.len() == 1);
        let permille =
            whole.parse::<u32>().ok().zip(digit).map(|(whole, tenth)| whole.saturating_mul(10) + tenth);
        match permille {
            Some(permille) if (1..=1_000_000).contains(&permille) => Ok(Some(permille)),
            _ => {
                Err("not a percentage of one GPU's time; write for example 50, or 200 for two GPUs"
                    .to_owned())
            }
        }
    })
}

/// The limits of all users.
pub(super) fn limits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<UserLimits, D::Error> {
    let tables = BTreeMap::<UserKey, UserTable>::deserialize(deserializer)?;
    let mut limits = UserLimits::default();
    for (UserKey { place, whom }, table) in tables {
        let limit = UserLimit {
            memory_bytes: table.memory,
            cores_permille: table.cores,
            grants: table.grants,
            place,
        };
        match whom {
            Whom::User(uid) => drop(limits.own.insert(uid, limit)),
            Whom::Members(gid) => drop(limits.members.insert(gid, limit)),
            Whom::Others => limits.others = Some(limit),
        }
    }
    Ok(limits)
}
