//! Rights of the API's callers. The kernel names a caller's user and groups (`SO_PEERCRED`, `SO_PEERGROUPS`), never a message.

use std::sync::Arc;

use nix::unistd::{Gid, Group, Uid, User};

use crate::settings::Api;
use crate::users::LiveLimits;

/// User and groups of a connected process, at the time when it connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group, and the supplementary ones.
    pub groups: Arc<[u32]>,
}

/// What a caller may do, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing.
    Nothing,
    /// Read what the manager knows.
    Look,
    /// Also make, change and release own grants, within the user's limit.
    Own,
    /// Change grants and GPUs.
    Change,
}

/// The rights of all users.
#[derive(Debug, Clone)]
pub struct Access {
    /// Whether only listed users may connect. If not, the socket's permissions alone decide.
    is_listed: bool,
    /// The manager's user.
    owner: u32,
    /// Group that may change, if the socket's mode admits its group.
    operators: Option<u32>,
    /// Groups that may look.
    viewers: Vec<u32>,
    /// Users that may have grants of their own.
    users: LiveLimits,
}

impl Access {
    /// The rights by these settings, for a manager of the user and group of this process.
    pub fn new(api: &Api) -> Self {
        let group = api.group.unwrap_or_else(|| Gid::effective().as_raw());
        Self {
            is_listed: !api.viewers.is_empty() || !api.users.get().is_empty(),
            owner: Uid::effective().as_raw(),
            operators: (api.mode & 0o020 != 0).then_some(group),
            viewers: api.viewers.clone(),
            users: api.users.clone(),
        }
    }

    /// Permissions of the socket: as configured, and open to all if the manager tells callers apart itself.
    pub fn socket_mode(&self, api: &Api) -> u32 {
        if self.is_listed { api.mode | 0o666 } else { api.mode }
    }

    /// What this caller may do.
    pub fn right_of(&self, caller: &Caller) -> Right {
        let is_in = |group: &u32| caller.groups.contains(group);
        let users = self.users.get();
        if !self.is_listed || [0, self.owner].contains(&caller.uid) {
            Right::Change
        } else if users.own.contains_key(&caller.uid) {
            // A limit by name holds for a member of the operators' group too.
            Right::Own
        } else if self.operators.iter().any(is_in) {
            Right::Change
        } else if users.of(caller.uid, &caller.groups).is_some() {
            Right::Own
        } else if self.viewers.iter().any(is_in) {
            Right::Look
        } else {
            Right::Nothing
        }
    }

    /// Sentence for a caller whose call was refused. Asks the system for names, so it may block.
    pub fn refusal(&self, caller: &Caller, method: &str) -> String {
        let user = user_name(caller.uid);
        let change = match self.operators {
            Some(group) => format!("{} (api.group)", group_name(group)),
            None => "none (api.mode admits no group)".to_owned(),
        };
        match self.right_of(caller) {
            Right::Nothing => {
                let viewers: Vec<String> = self.viewers.iter().copied().map(group_name).collect();
                let viewers = match viewers.as_slice() {
                    [] => "none".to_owned(),
                    some => some.join(", "),
                };
                format!(
                    "user {user} may not use this manager, {method} is refused: root gives the user grants of its own by a table [users] \
                     in manager.toml, or a group by usermod -aG GROUP USER: {viewers} may look (api.viewers), {change} may change all"
                )
            }
            Right::Own => format!(
                "user {user} may change own grants only, {method} is refused: the group that may change all is {change}; root adds \
                 a user: usermod -aG GROUP USER"
            ),
            Right::Look | Right::Change => format!(
                "user {user} may look and not change, {method} is refused: the group that may change is {change}; root adds a \
                 user: usermod -aG GROUP USER"
            ),
        }
    }
}

/// Name and number of a user, such as `alice (1000)`.
pub fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => format!("{} ({uid})", user.name),
        _ => uid.to_string(),
    }
}

fn group_name(gid: u32) -> String {
    match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => group.name,
        _ => gid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{UserLimit, UserLimits};

    fn caller(uid: u32, groups: &[u32]) -> Caller {
        Caller { uid, groups: groups.into() }
    }

    fn access(mode: u32, viewers: &[u32]) -> Access {
        Access {
            owner: 70,
            ..Access::new(&Api { mode, group: Some(500), viewers: viewers.to_vec(), ..Api::default() })
        }
    }

    #[test]
    fn without_viewers_the_sockets_permissions_decide_alone() {
        let access = access(0o660, &[]);
        assert_eq!(access.right_of(&caller(1000, &[1000])), Right::Change);
        assert_eq!(access.socket_mode(&Api::default()), 0o660);
    }

    #[test]
    fn a_viewer_looks_an_operator_changes_and_no_other_does_anything() {
        let access = access(0o660, &[600, 601]);
        for (uid, groups, right) in [
            (0, &[][..], Right::Change),
            (70, &[], Right::Change),
            (1000, &[1000, 500], Right::Change),
            (1000, &[500, 600], Right::Change),
            (1000, &[1000, 601], Right::Look),
            (1000, &[600], Right::Look),
            (1000, &[1000], Right::Nothing),
            (600, &[], Right::Nothing),
        ] {
            assert_eq!(access.right_of(&caller(uid, groups)), right, "{uid} {groups:?}");
        }
        assert_eq!(access.socket_mode(&Api::default()), 0o666);
    }

    #[test]
    fn a_user_with_a_limit_changes_own_grants_and_an_operator_all() {
        let limit =
            UserLimit { memory_bytes: Some(1), cores_permille: None, grants: None, place: String::new() };
        let users = LiveLimits::new(UserLimits {
            own: [(1000, limit.clone())].into(),
            members: [(700, limit)].into(),
            others: None,
        });
        let api = Api { group: Some(500), users, ..Api::default() };
        let access = Access { owner: 70, ..Access::new(&api) };
        for (uid, groups, right) in [
            (0, &[][..], Right::Change),
            (1000, &[], Right::Own),
            (1000, &[500], Right::Own),
            (1001, &[700], Right::Own),
            (1001, &[700, 500], Right::Change),
            (1001, &[], Right::Nothing),
        ] {
            assert_eq!(access.right_of(&caller(uid, groups)), right, "{uid} {groups:?}");
        }
    }

    #[test]
    fn a_mode_without_its_group_admits_no_group_to_change() {
        let access = access(0o600, &[600]);
        assert_eq!(access.right_of(&caller(1000, &[500])), Right::Nothing);
        let text = access.refusal(&caller(1000, &[600]), "Grants/Create");
        assert!(
            text.contains("1000") && text.contains("Grants/Create") && text.contains("api.mode"),
            "{text}"
        );
    }
}
