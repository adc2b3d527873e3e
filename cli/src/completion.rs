//! Completion in a shell. Its script asks `vcuda` itself, with `VCUDA_COMPLETE` set, as only that knows the tenants' names.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use clap::{Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::Shells;

use crate::config::Environment;
use crate::failure::{Failure, failed};
use crate::manager_client::ManagerClient;
use crate::render::quota::{described, quota};

/// Variable by which the script asks; its value is the shell.
const ENV_COMPLETE: &str = "VCUDA_COMPLETE";
/// Zsh loads the file as the function `_vcuda` when it is first called, and awaits an answer from that call.
const ZSH_FIRST_CALL: &str = "\
if [ \"$funcstack[1]\" = \"_vcuda\" ]; then
    _clap_dynamic_completer_vcuda \"$@\"
fi
";
/// Time for a manager's answer, after which no name is offered.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Shell with a completion script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// Bash
    Bash,
    /// Elvish
    Elvish,
    /// Fish
    Fish,
    /// PowerShell
    Powershell,
    /// Zsh
    Zsh,
}

/// Answers a completion script. Returns whether one asked; nothing else is to be done then.
pub(crate) fn answer(command: fn() -> Command) -> Result<bool, Failure> {
    let words = std::env::args_os().collect::<Vec<OsString>>();
    CompleteEnv::with_factory(command)
        .var(ENV_COMPLETE)
        .try_complete(words, std::env::current_dir().ok().as_deref())
        .map_err(failed)
}

/// Prints the completion script of a shell.
pub(crate) fn script(shell: Shell) -> Result<(), Failure> {
    let name = shell.to_possible_value().map(|value| value.get_name().to_owned());
    let shells = Shells::builtins();
    let found = name.as_deref().and_then(|name| shells.completer(name));
    let found = found.ok_or_else(|| Failure::Usage(format!("completions {shell:?}: no such shell")))?;
    let mut script = Vec::new();
    found.write_registration(ENV_COMPLETE, "vcuda", "vcuda", "vcuda", &mut script)?;
    if shell == Shell::Zsh {
        script.extend_from_slice(ZSH_FIRST_CALL.as_bytes());
    }
    Ok(io::stdout().write_all(&script)?)
}

/// Completes names of grants and of tenants of `vcuda run`.
pub(crate) fn tenants() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(typed, &[grants, run_tenants]))
}

/// Completes names of grants.
pub(crate) fn grants_only() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(typed, &[grants]))
}

/// Completes names of tenants of `vcuda run`.
pub(crate) fn run_tenants_only() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(typed, &[run_tenants]))
}

/// Completes ids of grants' tenants.
pub(crate) fn ids() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| candidates(typed, &[grant_ids]))
}

/// A name, and what is said about it.
type Named = (String, String);

/// Names from these sources that begin with what was typed. A source that does not answer in time has none.
fn candidates(typed: &OsStr, sources: &[fn(&Environment) -> Vec<Named>]) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else {
        return Vec::new();
    };
    let (sender, names) = mpsc::channel();
    for source in sources.iter().copied() {
        let sender = sender.clone();
        let ask = move || sender.send(source(&Environment::read()));
        // Without a thread, nothing is offered.
        let _ = std::thread::Builder::new().spawn(ask);
    }
    drop(sender);
    let mut found: Vec<Named> = Vec::new();
    while let Ok(more) = names.recv_timeout(ANSWER_WITHIN) {
        found.extend(more);
    }
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    let fits = |name: &str| name.starts_with(typed) && !name.contains(char::is_control);
    let found = found.into_iter().filter(|(name, _)| fits(name));
    found.map(|(name, words)| CompletionCandidate::new(name).help(Some(words.into()))).collect()
}

fn grants(environment: &Environment) -> Vec<Named> {
    of_grants(environment, |grant| grant.key.clone())
}

fn grant_ids(environment: &Environment) -> Vec<Named> {
    of_grants(environment, |grant| grant.id.clone())
}

fn of_grants(environment: &Environment, name: fn(&vcuda_manager_api::v1::Grant) -> String) -> Vec<Named> {
    let node = ManagerClient::find(environment).ok().flatten();
    let grants = node.and_then(|node| node.list().ok()).unwrap_or_default();
    let named = |one| (name(one), described(&quota(one)));
    grants.iter().filter(|grant| !grant.transient).map(named).collect()
}

/// Tenants of `vcuda run`.
fn run_tenants(environment: &Environment) -> Vec<Named> {
    let node = ManagerClient::find(environment).ok().flatten();
    let grants = node.and_then(|node| node.list().ok()).unwrap_or_default();
    let runs = grants.into_iter().filter(|grant| grant.transient);
    runs.map(|grant| (grant.key, "of vcuda run".to_owned())).collect()
}
