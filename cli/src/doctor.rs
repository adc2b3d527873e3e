//! `vcuda doctor`: checks each link between a program and its quota, with a remedy for a broken one.

mod chain;
pub(crate) mod container;
mod launcher;
mod loader;
mod machine;
mod manager;
mod one_tenant;
mod oversubscription;
pub(crate) mod probe;
pub(crate) mod program;
mod suspension;
mod tenants;

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use vcuda_region::directory;

use crate::args::DoctorArgs;
use crate::config::Environment;
use crate::failure::Failure;
use crate::inventory::Inventory;
use crate::output::Output;
use crate::render::words::width as columns;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    /// Works.
    Ok,
    /// Works, with something worth knowing.
    Note,
    /// Broken: a program is not limited, or does not run.
    Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) health: Health,
    pub(crate) link: String,
    /// The observed state.
    pub(crate) seen: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(link: &str, seen: impl Into<String>) -> Finding {
        Finding { health: Health::Ok, link: link.to_owned(), seen: seen.into(), remedy: None }
    }

    pub(crate) fn note(link: &str, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            health: Health::Note,
            link: link.to_owned(),
            seen: seen.into(),
            remedy: Some(remedy.into()),
        }
    }

    pub(crate) fn broken(link: &str, seen: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            health: Health::Broken,
            link: link.to_owned(),
            seen: seen.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Prints the state of each link, or what is wrong with a tenant. Fails if a link is broken.
pub(crate) fn doctor(args: &DoctorArgs, environment: &Environment) -> Result<(), Failure> {
    let findings = match &args.tenant {
        Some(name) => one_tenant::findings(name, environment)?,
        None => findings(args, environment),
    };
    let mut out = io::stdout().lock();
    if args.json {
        #[derive(Serialize)]
        struct Document<'a> {
            findings: &'a [Finding],
        }
        let findings = &findings;
        serde_json::to_writer_pretty(&mut out, &Document { findings })?;
        writeln!(out)?;
    } else {
        out.write_all(text(&findings, Look::find(environment)).as_bytes())?;
    }
    if findings.iter().any(|finding| finding.health == Health::Broken) {
        Err(Failure::Reported)
    } else {
        Ok(())
    }
}

/// Checks the machine and the tenants; inside a tenant or with a command, also the whole chain to the driver.
pub(crate) fn findings(args: &DoctorArgs, environment: &Environment) -> Vec<Finding> {
    // As for `smi` and `set`: a named machine takes the place of the driver, and one that is there the place of a missing driver.
    let is_asked = args.sim || environment.machine.is_some();
    let is_simulated = is_asked || matches!(Inventory::find(environment, false), Ok(Inventory::Simulated(_)));
    let tenant = directory::resolve(environment.tenant.as_deref());
    let places = container::Places::real();
    let is_container = tenant.as_deref() == Some(Path::new(directory::MANAGED)) || places.has_preload();
    let mut findings = Vec::new();
    if is_container {
        findings.extend(container::findings(&places, !is_simulated));
    } else {
        findings.extend(machine::own_files(is_simulated, environment));
    }
    if is_simulated && !is_asked {
        let remedy = "install NVIDIA's driver, in a container start it with the GPU";
        let seen = "none is found: as `vcuda smi` does, this looks at the simulated machine of earlier runs";
        findings.push(Finding::note("NVIDIA driver", seen, remedy));
    }
    findings.extend(machine::findings(is_simulated, environment));
    match tenant {
        Some(tenant) => findings.extend(chain::check_this_tenant(&tenant, is_container)),
        None => {
            findings.extend(manager::findings(is_simulated, environment));
            if !args.command.is_empty() {
                findings.extend(chain::check_new_tenant(is_simulated, environment));
            }
        }
    }
    if let Some(command) = args.command.first() {
        findings.extend(program::findings(command, environment));
        findings.extend(launcher::finding(&args.command));
        findings.extend(loader::findings());
    }
    findings
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Width to which lines are broken (columns); `None`: they are not broken, for a program that reads them.
    pub(crate) width: Option<usize>,
    pub(crate) is_colored: bool,
}

impl Look {
    /// For stdout: lines are broken on a terminal, and if `COLUMNS` says how wide it is.
    fn find(environment: &Environment) -> Look {
        let output = Output::find(environment);
        let is_known = output.is_terminal || environment.columns.is_some();
        Look { width: is_known.then_some(output.width), is_colored: output.is_colored }
    }
}

/// The findings, a line each, with a line for its remedy.
pub(crate) fn text(findings: &[Finding], look: Look) -> String {
    let mut text = String::new();
    for finding in findings {
        let (word, color) = match finding.health {
            Health::Ok => ("ok", 32),
            Health::Note => ("note", 33),
            Health::Broken => ("broken", 31),
        };
        let head = format!("{word:<6}  {:<22}  ", finding.link);
        let seen = broken(&head, &finding.seen, look.width);
        // The word is colored after the lines were broken, as colors have no width.
        let seen = match seen.strip_prefix(word) {
            Some(rest) if look.is_colored => format!("\x1b[{color}m{word}\x1b[0m{rest}"),
            _ => seen,
        };
        text += &seen;
        if let Some(remedy) = &finding.remedy {
            text += &broken("        -> ", remedy, look.width);
        }
    }
    text
}

/// `head` and `words` in lines of at most `width` columns, which are broken between words. Later lines are set in by 11 columns.
fn broken(head: &str, words: &str, width: Option<usize>) -> String {
    const INDENT: &str = "           ";
    let mut text = String::new();
    let mut line = head.to_owned();
    let mut is_empty = true;
    for word in words.split(' ') {
        let needed = columns(&line) + usize::from(!is_empty) + columns(word);
        let is_too_long = width.is_some_and(|width| needed > width);
        if is_too_long && !line.trim().is_empty() {
            text += line.trim_end();
            text.push('\n');
            INDENT.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    text + line.trim_end() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_where_the_width_is_known() {
        let findings = [
            Finding::note("runtime directory", "/run/vcuda, not on tmpfs", "set XDG_RUNTIME_DIR to one"),
            Finding::ok("shim library", "/a/path/that/is/longer/than/the/whole/line/is"),
        ];
        let look = |width| Look { width, is_colored: false };
        assert_eq!(
            text(&findings, look(Some(40))),
            "note    runtime directory\n           /run/vcuda, not on tmpfs\n        -> set XDG_RUNTIME_DIR to one\n\
             ok      shim library\n           /a/path/that/is/longer/than/the/whole/line/is\n"
        );
        assert_eq!(text(&findings, look(None)).lines().count(), 3);
        let colored = Look { width: None, is_colored: true };
        assert!(text(&findings, colored).starts_with("\x1b[33mnote\x1b[0m    runtime"));
    }
}
